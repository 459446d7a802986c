// GPT-2: layer_norm before each half, learned positions, biases, gelu (tanh form), head tied to the
// embedding.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]; other heads as of decoder.h
// With dropout also input seed i64 []; evaluation and decoding leave it out.
// q, k and v are three weights, so that heads shard without a permutation; importers split the fused one.
#include "graph/base/text.h"
#include "graph/models/layer_builder.h"
#include "graph/models/model_family.h"

namespace tessera {

namespace {

struct Gpt2Sizes {
  int64_t L, C, H, F, V, T;
  double norm_eps, dropout;
  bool tied, head, causal;
  int64_t classes;
};

Gpt2Sizes gpt2_sizes(ConfigReader& config) {
  Gpt2Sizes m;
  m.L = config.size("L");
  m.C = config.size("C");
  m.H = config.size("H");
  m.F = config.size("F", 4 * m.C);
  m.V = config.size("V");
  m.T = config.size("T");
  m.norm_eps = config.real("norm_eps", 1e-5);
  m.dropout = config.real("dropout", 0);
  m.tied = config.flag("tied", true);
  m.head = config.flag("head", true);
  m.causal = config.flag("causal", true);
  m.classes = config.size("classes", 0);
  config.check(m.dropout >= 0 && m.dropout < 1, format("dropout is {}, wanted 0 <= dropout < 1", m.dropout));
  config.check(m.C % m.H == 0, format("C = {} channels do not divide into H = {} heads", m.C, m.H));
  return m;
}

// Dropout on the branches of the residual stream; absent (no node, no seed) when the probability is 0.
class Dropout {
 public:
  Dropout(LayerBuilder& b, double p)
      : b_(b), p_(p), seed_(p > 0 ? b.input("seed", DType::kI64, {}) : kNoTensor) {}
  TensorId operator()(TensorId x) {
    return p_ > 0 ? b_.op("dropout", {x, seed_}, {{"p", p_}, {"salt", salt_++}}) : x;
  }

 private:
  LayerBuilder& b_;
  const double p_;
  const TensorId seed_;
  int64_t salt_ = 0;
};

TensorId norm(LayerBuilder& b, const Gpt2Sizes& m, const std::string& name, TensorId x) {
  const TensorId weight = b.parameter(name + ".weight", {m.C});
  const TensorId bias = b.parameter(name + ".bias", {m.C});
  return b.op("layer_norm", {x, weight, bias}, {{"eps", m.norm_eps}});
}

TensorId attention(LayerBuilder& b, const Gpt2Sizes& m, const std::string& block, TensorId x, Dropout& drop) {
  b.scope(block + ".attention");
  const int64_t D = m.C / m.H;
  const TensorId normed = norm(b, m, block + ".norm1", x);
  const TensorId q = b.split_heads(b.linear_with_bias(normed, block + ".q", m.C, m.C), D);  // [B, T, H, D]
  const TensorId k = b.split_heads(b.linear_with_bias(normed, block + ".k", m.C, m.C), D);
  const TensorId v = b.split_heads(b.linear_with_bias(normed, block + ".v", m.C, m.C), D);
  const TensorId mixed = b.op("attention", {q, k, v}, {{"causal", int64_t{m.causal ? 1 : 0}}});
  return b.op("add", {x, drop(b.linear_with_bias(b.merge_heads(mixed), block + ".o", m.C, m.C))});
}

TensorId feed_forward(LayerBuilder& b, const Gpt2Sizes& m, const std::string& block, TensorId x,
                      Dropout& drop) {
  b.scope(block + ".ffn");
  const TensorId normed = norm(b, m, block + ".norm2", x);
  const TensorId wide = b.linear_with_bias(normed, block + ".fc", m.C, m.F);
  const TensorId active = b.op("gelu", {wide}, {{"approximate", std::string("tanh")}});
  return b.op("add", {x, drop(b.linear_with_bias(active, block + ".proj", m.F, m.C))});
}

Result<Graph> build_gpt2(const ModelConfig& config) {
  LayerBuilder b;
  ConfigReader reader(config, b);
  const Gpt2Sizes m = gpt2_sizes(reader);
  if (!reader.done()) return b.finish();

  const int64_t B = b.symbol("B"), T = b.symbol("T", m.T);
  const TensorId tokens = b.input("tokens", DType::kI32, {B, T});
  const TensorId positions = b.input("positions", DType::kI32, {B, T});

  Dropout drop(b, m.dropout);

  b.scope("embedding");
  const TensorId table = b.parameter("token_embedding", {m.V, m.C});
  const TensorId position_table = b.parameter("position_embedding", {m.T, m.C});
  TensorId x =
      b.op("add", {b.op("embedding", {table, tokens}), b.op("embedding", {position_table, positions})});
  x = drop(x);
  for (int64_t i = 0; i < m.L; ++i) {
    const std::string block = format("block.{}", i);
    x = attention(b, m, block, x, drop);
    x = feed_forward(b, m, block, x, drop);
  }
  b.scope("output");
  x = norm(b, m, "final_norm", x);
  if (m.classes > 0 || !m.head) {
    if (m.classes > 0) b.output("class_logits", b.linear(x, "classifier", m.C, m.classes));
    b.output("hidden", x);
    return b.finish();
  }
  b.output("logits", m.tied ? b.project(x, table) : b.linear(x, "output", m.C, m.V));
  return b.finish();
}

constexpr NameRule kGpt2Gguf[] = {{"token_embedding", "token_embd.weight"},
                              {"position_embedding", "position_embd.weight"},
                              {"final_norm.weight", "output_norm.weight"},
                              {"final_norm.bias", "output_norm.bias"},
                              {"output", "output.weight"},
                              {"block.#.norm1.weight", "blk.#.attn_norm.weight"},
                              {"block.#.norm1.bias", "blk.#.attn_norm.bias"},
                              {"block.#.q.weight", "blk.#.attn_qkv.weight"},
                              {"block.#.k.weight", "blk.#.attn_qkv.weight"},
                              {"block.#.v.weight", "blk.#.attn_qkv.weight"},
                              {"block.#.q.bias", "blk.#.attn_qkv.bias"},
                              {"block.#.k.bias", "blk.#.attn_qkv.bias"},
                              {"block.#.v.bias", "blk.#.attn_qkv.bias"},
                              {"block.#.o.weight", "blk.#.attn_output.weight"},
                              {"block.#.o.bias", "blk.#.attn_output.bias"},
                              {"block.#.norm2.weight", "blk.#.ffn_norm.weight"},
                              {"block.#.norm2.bias", "blk.#.ffn_norm.bias"},
                              {"block.#.fc.weight", "blk.#.ffn_up.weight"},
                              {"block.#.fc.bias", "blk.#.ffn_up.bias"},
                              {"block.#.proj.weight", "blk.#.ffn_down.weight"},
                              {"block.#.proj.bias", "blk.#.ffn_down.bias"}};

// Its Conv1D layers hold their weights [in, out].
constexpr NameRule kGpt2Huggingface[] = {
    {"token_embedding", "wte.weight"},
    {"position_embedding", "wpe.weight"},
    {"final_norm.weight", "ln_f.weight"},
    {"final_norm.bias", "ln_f.bias"},
    {"output", "lm_head.weight"},
    {"classifier", "score.weight"},
    {"block.#.norm1.weight", "h.#.ln_1.weight"},
    {"block.#.norm1.bias", "h.#.ln_1.bias"},
    {"block.#.q.weight", "h.#.attn.c_attn.weight", ValueChange::kTransposed},
    {"block.#.k.weight", "h.#.attn.c_attn.weight", ValueChange::kTransposed},
    {"block.#.v.weight", "h.#.attn.c_attn.weight", ValueChange::kTransposed},
    {"block.#.q.bias", "h.#.attn.c_attn.bias"},
    {"block.#.k.bias", "h.#.attn.c_attn.bias"},
    {"block.#.v.bias", "h.#.attn.c_attn.bias"},
    {"block.#.o.weight", "h.#.attn.c_proj.weight", ValueChange::kTransposed},
    {"block.#.o.bias", "h.#.attn.c_proj.bias"},
    {"block.#.norm2.weight", "h.#.ln_2.weight"},
    {"block.#.norm2.bias", "h.#.ln_2.bias"},
    {"block.#.fc.weight", "h.#.mlp.c_fc.weight", ValueChange::kTransposed},
    {"block.#.fc.bias", "h.#.mlp.c_fc.bias"},
    {"block.#.proj.weight", "h.#.mlp.c_proj.weight", ValueChange::kTransposed},
    {"block.#.proj.bias", "h.#.mlp.c_proj.bias"},
};

constexpr HuggingfaceClass kGpt2Classes[] = {
    {"gpt2", "GPT2LMHeadModel", [](HuggingfaceKeys& k) {
       k.size("n_embd", "C", 768);
       k.size("n_layer", "L", 12);
       k.size("n_head", "H", 12);
       k.size("n_inner", "F", 4 * k.our_size("C"));
       k.size("vocab_size", "V", 50257);
       k.size("n_positions", "T", 1024);
       k.real("layer_norm_epsilon", "norm_eps", 1e-5);
       k.flag("tie_word_embeddings", "tied", true);
       k.choice("activation_function", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}, 0);
       k.wants("scale_attn_weights", "true", "scores times 1/sqrt(D)");
       k.wants("scale_attn_by_inverse_layer_idx", "false", "scores alike in every layer");
       k.wants("add_cross_attention", "false", "no encoder before it");
       k.states("resid_pdrop", k.our_real("dropout"));
       k.states("embd_pdrop", k.our_real("dropout"));
       k.states("attn_pdrop", 0);
     }}};

void gpt2_gguf(GgufKeys& k) {
  k.sizes();
  k.real("attention.layer_norm_epsilon", "norm_eps", {});
  k.whole_heads();
}
constexpr GgufArchitecture kGpt2Architectures[] = {{.name = "gpt2", .keys = gpt2_gguf, .biases = Biases::kAll}};

const ModelFamily kGpt2Families[] = {{
    .name = "gpt2",
    .example = "gpt2:L=12,C=768,H=12,V=50257,T=1024",
    .build = build_gpt2,
    .read = [](ConfigReader& reader) { (void)gpt2_sizes(reader); },
    .huggingface = {kGpt2Huggingface},
    .gguf = {kGpt2Gguf},
    .classes = kGpt2Classes,
    .architectures = kGpt2Architectures,
}};

}  // namespace

std::span<const ModelFamily> gpt2_families() { return kGpt2Families; }

}  // namespace tessera
