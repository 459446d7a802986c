#include "graph/models/experts.h"

namespace tessera {

void AuxiliaryLoss::add_layer(TensorId logits, TensorId probs, TensorId expert) {
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

void AuxiliaryLoss::add(TensorId each, double weight) {
  const TensorId mean = b_.op("reduce_mean", {each}, {{"axes", std::vector<int64_t>{0}}});
  const TensorId term = b_.op("scale", {mean}, {{"factor", weight}});
  sum_ = sum_ == kNoTensor ? term : b_.op("add", {sum_, term});
}

TensorId experts(LayerBuilder& b, const DecoderSizes& m, const std::string& block, TensorId x,
                 AuxiliaryLoss& auxiliary) {
  const TensorId logits = b.linear(x, block + ".router", m.C, m.E);
  const TensorId probs = b.op("softmax", {logits});
  std::vector<Attr> attrs = {{"k", m.K}, {"capacity", m.capacity}};
  if (!m.normalize) attrs.push_back({"normalize", int64_t{0}});
  const std::vector<TensorId> routed = b.op_all("moe_route", {probs}, std::move(attrs));
  if (routed.empty()) return kNoTensor;
  const TensorId expert = routed[0], slot = routed[1], gate = routed[2], token = routed[3], load = routed[4];
  auxiliary.add_layer(logits, probs, expert);

  const auto product = [&](TensorId input, const std::string& name, int64_t k, int64_t n) {
    return b.op("expert_matmul", {input, b.parameter(block + ".experts." + name, {m.E, n, k}), load},
                {{"trans_w", int64_t{1}}});
  };
  const TensorId there = b.op("moe_dispatch", {x, token});  // [E, B, S, C]
  const TensorId wide = b.op("swiglu", {product(there, "gate", m.C, m.F), product(there, "up", m.C, m.F)});
  return b.op("moe_combine", {product(wide, "down", m.F, m.C), expert, slot, gate});
}

}  // namespace tessera
