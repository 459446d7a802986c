// Mixture of experts as Mixtral: Llama whose feed-forward half is E of them, of which a router picks K for
// every token.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V], aux_loss f32 []
// A sequence is a group: it has slots of its own at every expert, `capacity` times the even share. A token
// without a slot skips the layer on the residual stream. capacity=0: nothing is dropped.
#include "graph/base/text.h"
#include "graph/models/families.h"

namespace tessera {

namespace {

struct MoeSizes {
  LlamaSizes llama;
  int64_t E, K;
  double capacity, aux, z;
};

MoeSizes read(ConfigReader& config) {
  MoeSizes m;
  m.llama = read_llama_sizes(config);
  m.E = config.size("E");
  m.K = config.size("K", 2);
  m.capacity = config.real("capacity", 1.25);
  m.aux = config.real("aux", 0.01);
  m.z = config.real("z", 0);
  config.check(m.K <= m.E, format("K = {} experts of a token are more than E = {}", m.K, m.E));
  config.check(m.aux >= 0 && m.z >= 0, format("aux is {} and z is {}, wanted 0 or more", m.aux, m.z));
  return m;
}

// AuxiliaryLoss: the balance loss of a layer, E * sum_e fraction[e] * mean probability[e], and the router's
// z-loss, the mean square of the log of the softmax's denominator. Both are computed for every sequence and
// then averaged, so that they do not depend on how a batch is split.
class AuxiliaryLoss {
 public:
  AuxiliaryLoss(LayerBuilder& b, const MoeSizes& m) : b_(b), m_(m) {}

  void add_layer(TensorId logits, TensorId probs, TensorId expert) {
    if (m_.aux > 0) {
      const TensorId mean = b_.op("reduce_mean", {probs}, {{"axes", tokens_}});  // [B, E]
      const TensorId fraction = b_.op("moe_fraction", {expert, probs});
      const TensorId products = b_.op("mul", {mean, fraction});
      add(b_.op("reduce_sum", {products}, {{"axes", experts_}}), m_.aux * static_cast<double>(m_.E));
    }
    if (m_.z > 0) {
      const TensorId square = b_.op("square", {b_.op("log_sum_exp", {logits})});
      add(b_.op("reduce_mean", {square}, {{"axes", tokens_}}), m_.z);
    }
  }
  // kNoTensor when both weights are 0.
  TensorId sum() const { return sum_; }

 private:
  void add(TensorId each /* [B] */, double weight) {
    const TensorId mean = b_.op("reduce_mean", {each}, {{"axes", std::vector<int64_t>{0}}});
    const TensorId term = b_.op("scale", {mean}, {{"factor", weight}});
    sum_ = sum_ == kNoTensor ? term : b_.op("add", {sum_, term});
  }

  LayerBuilder& b_;
  const MoeSizes& m_;
  const std::vector<int64_t> tokens_ = {1}, experts_ = {1};
  TensorId sum_ = kNoTensor;
};

TensorId feed_forward(LayerBuilder& b, const MoeSizes& m, const std::string& block, TensorId x,
                      AuxiliaryLoss& auxiliary) {
  b.scope(block + ".ffn");
  const int64_t C = m.llama.C, F = m.llama.F;
  const TensorId normed = llama_norm(b, m.llama, block + ".ffn_norm", x);
  const TensorId logits = b.linear(normed, block + ".router", C, m.E);
  const TensorId probs = b.op("softmax", {logits});
  const std::vector<TensorId> routed = b.op_all("moe_route", {probs}, {{"k", m.K}, {"capacity", m.capacity}});
  if (routed.empty()) return kNoTensor;
  const TensorId expert = routed[0], slot = routed[1], gate = routed[2], token = routed[3], load = routed[4];
  auxiliary.add_layer(logits, probs, expert);

  const auto product = [&](TensorId input, const std::string& name, int64_t k, int64_t n) {
    return b.op("expert_matmul", {input, b.parameter(block + ".experts." + name, {m.E, n, k}), load},
                {{"trans_w", int64_t{1}}});
  };
  const TensorId there = b.op("moe_dispatch", {normed, token});  // [E, B, S, C]
  const TensorId wide = b.op("swiglu", {product(there, "gate", C, F), product(there, "up", C, F)});
  const TensorId done = product(wide, "down", F, C);
  return b.op("add", {x, b.op("moe_combine", {done, expert, slot, gate})});
}

}  // namespace

Result<Graph> build_moe(const ModelConfig& config) {
  LayerBuilder b;
  ConfigReader reader(config, b);
  const MoeSizes m = read(reader);
  if (!reader.done()) return b.finish();

  const int64_t B = b.symbol("B"), T = b.symbol("T", m.llama.T);
  const TensorId tokens = b.input("tokens", DType::kI32, {B, T});
  const TensorId positions = b.input("positions", DType::kI32, {B, T});

  AuxiliaryLoss auxiliary(b, m);
  b.scope("embedding");
  const TensorId table = b.parameter("token_embedding", {m.llama.V, m.llama.C});
  TensorId x = b.op("embedding", {table, tokens});  // [B, T, C]
  for (int64_t i = 0; i < m.llama.L; ++i) {
    const std::string block = format("block.{}", i);
    x = llama_attention(b, m.llama, block, x, positions);
    x = feed_forward(b, m, block, x, auxiliary);
  }
  llama_output(b, m.llama, x, table);
  if (auxiliary.sum() != kNoTensor) b.output("aux_loss", auxiliary.sum());
  return b.finish();
}

}  // namespace tessera
