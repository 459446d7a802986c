// Llama: rms_norm before each half, rotary positions, grouped queries, SwiGLU, no biases.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
// Parameters are named as in docs/models.md.
#include "graph/base/text.h"
#include "graph/models/families.h"
#include "graph/models/layer_builder.h"

namespace tessera {

LlamaSizes read_llama_sizes(ConfigReader& config) {
  LlamaSizes m;
  m.L = config.size("L");
  m.C = config.size("C");
  m.H = config.size("H");
  m.KV = config.size("KV", m.H);
  m.D = config.size("D", m.C % m.H == 0 ? m.C / m.H : 0);
  m.F = config.size("F");
  m.V = config.size("V");
  m.T = config.size("T");
  m.norm_eps = config.real("norm_eps", 1e-5);
  m.rope_theta = config.real("rope_theta", 10000);
  m.tied = config.flag("tied", false);
  m.rope_half = config.flag("rope_half", false);
  config.check(m.H % m.KV == 0, format("H = {} query heads is not a multiple of KV = {}", m.H, m.KV));
  config.check(
      m.D > 0,
      format("C = {} channels do not divide into H = {} heads; wanted that, or a head size D", m.C, m.H));
  config.check(m.D % 2 == 0, format("head size D = {} is odd; rotary positions turn pairs", m.D));
  return m;
}

TensorId llama_norm(LayerBuilder& b, const LlamaSizes& m, const std::string& name, TensorId x) {
  return b.op("rms_norm", {x, b.parameter(name, {m.C})}, {{"eps", m.norm_eps}});
}

TensorId llama_attention(LayerBuilder& b, const LlamaSizes& m, const std::string& block, TensorId x,
                         TensorId positions) {
  b.scope(block + ".attention");
  const std::vector<Attr> turn = {{"theta", m.rope_theta},
                                  {"style", std::string(m.rope_half ? "half" : "interleaved")}};
  const TensorId normed = llama_norm(b, m, block + ".attention_norm", x);
  const TensorId q = b.split_heads(b.linear(normed, block + ".q", m.C, m.H * m.D), m.D);   // [B, T, H, D]
  const TensorId k = b.split_heads(b.linear(normed, block + ".k", m.C, m.KV * m.D), m.D);  // [B, T, KV, D]
  const TensorId v = b.split_heads(b.linear(normed, block + ".v", m.C, m.KV * m.D), m.D);
  const TensorId turned_q = b.op("rope", {q, positions}, turn);
  const TensorId turned_k = b.op("rope", {k, positions}, turn);
  const TensorId mixed = b.op("attention", {turned_q, turned_k, v}, {{"causal", int64_t{1}}});
  return b.op("add", {x, b.linear(b.merge_heads(mixed), block + ".o", m.H * m.D, m.C)});
}

void llama_output(LayerBuilder& b, const LlamaSizes& m, TensorId x, TensorId table) {
  b.scope("output");
  x = llama_norm(b, m, "final_norm", x);
  b.output("logits", m.tied ? b.project(x, table) : b.linear(x, "output", m.C, m.V));
}

namespace {

TensorId feed_forward(LayerBuilder& b, const LlamaSizes& m, const std::string& block, TensorId x) {
  b.scope(block + ".ffn");
  const TensorId normed = llama_norm(b, m, block + ".ffn_norm", x);
  const TensorId gate = b.linear(normed, block + ".gate", m.C, m.F);
  const TensorId up = b.linear(normed, block + ".up", m.C, m.F);
  return b.op("add", {x, b.linear(b.op("swiglu", {gate, up}), block + ".down", m.F, m.C)});
}

}  // namespace

Result<Graph> build_llama(const ModelConfig& config) {
  LayerBuilder b;
  ConfigReader reader(config, b);
  const LlamaSizes m = read_llama_sizes(reader);
  if (!reader.done()) return b.finish();

  const int64_t B = b.symbol("B"), T = b.symbol("T", m.T);
  const TensorId tokens = b.input("tokens", DType::kI32, {B, T});
  const TensorId positions = b.input("positions", DType::kI32, {B, T});

  b.scope("embedding");
  const TensorId table = b.parameter("token_embedding", {m.V, m.C});
  TensorId x = b.op("embedding", {table, tokens});  // [B, T, C]
  for (int64_t i = 0; i < m.L; ++i) {
    const std::string block = format("block.{}", i);
    x = llama_attention(b, m, block, x, positions);
    x = feed_forward(b, m, block, x);
  }
  llama_output(b, m, x, table);
  return b.finish();
}

}  // namespace tessera
