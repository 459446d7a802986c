// A bidirectional encoder as BERT: learned positions, attention in both directions, layer_norm after each
// half, gelu, and the masked-token head: a dense layer, gelu, layer_norm, and the embedding with a bias of
// its own.
//   tokens, positions i32 [B, T] -> logits f32 [B, T, V]
// The data decide which tokens are masked: labels hold the original token there and -1 everywhere else.
#include "graph/base/text.h"
#include "graph/models/families.h"
#include "graph/models/layer_builder.h"

namespace tessera {

namespace {

struct EncoderSizes {
  int64_t L, C, H, F, V, T;
  double norm_eps;
  bool tied;
};

EncoderSizes read(ConfigReader& config) {
  EncoderSizes m;
  m.L = config.size("L");
  m.C = config.size("C");
  m.H = config.size("H");
  m.F = config.size("F", 4 * m.C);
  m.V = config.size("V");
  m.T = config.size("T");
  m.norm_eps = config.real("norm_eps", 1e-12);
  m.tied = config.flag("tied", true);
  config.check(m.C % m.H == 0, format("C = {} channels do not divide into H = {} heads", m.C, m.H));
  return m;
}

TensorId norm(LayerBuilder& b, const EncoderSizes& m, const std::string& name, TensorId x) {
  const TensorId weight = b.parameter(name + ".weight", {m.C});
  const TensorId bias = b.parameter(name + ".bias", {m.C});
  return b.op("layer_norm", {x, weight, bias}, {{"eps", m.norm_eps}});
}

TensorId gelu(LayerBuilder& b, TensorId x) {
  return b.op("gelu", {x}, {{"approximate", std::string("none")}});
}

TensorId attention(LayerBuilder& b, const EncoderSizes& m, const std::string& block, TensorId x) {
  b.scope(block + ".attention");
  const int64_t D = m.C / m.H;
  const TensorId q = b.split_heads(b.linear_with_bias(x, block + ".q", m.C, m.C), D);  // [B, T, H, D]
  const TensorId k = b.split_heads(b.linear_with_bias(x, block + ".k", m.C, m.C), D);
  const TensorId v = b.split_heads(b.linear_with_bias(x, block + ".v", m.C, m.C), D);
  const TensorId mixed = b.op("attention", {q, k, v}, {{"causal", int64_t{0}}});
  const TensorId joined = b.op("add", {x, b.linear_with_bias(b.merge_heads(mixed), block + ".o", m.C, m.C)});
  return norm(b, m, block + ".norm1", joined);
}

TensorId feed_forward(LayerBuilder& b, const EncoderSizes& m, const std::string& block, TensorId x) {
  b.scope(block + ".ffn");
  const TensorId wide = gelu(b, b.linear_with_bias(x, block + ".fc", m.C, m.F));
  const TensorId joined = b.op("add", {x, b.linear_with_bias(wide, block + ".proj", m.F, m.C)});
  return norm(b, m, block + ".norm2", joined);
}

}  // namespace

Result<Graph> build_encoder(const ModelConfig& config) {
  LayerBuilder b;
  ConfigReader reader(config, b);
  const EncoderSizes m = read(reader);
  if (!reader.done()) return b.finish();

  const int64_t B = b.symbol("B"), T = b.symbol("T", m.T);
  const TensorId tokens = b.input("tokens", DType::kI32, {B, T});
  const TensorId positions = b.input("positions", DType::kI32, {B, T});

  b.scope("embedding");
  const TensorId table = b.parameter("token_embedding", {m.V, m.C});
  const TensorId position_table = b.parameter("position_embedding", {m.T, m.C});
  TensorId x =
      b.op("add", {b.op("embedding", {table, tokens}), b.op("embedding", {position_table, positions})});
  x = norm(b, m, "embedding_norm", x);
  for (int64_t i = 0; i < m.L; ++i) {
    const std::string block = format("block.{}", i);
    x = attention(b, m, block, x);
    x = feed_forward(b, m, block, x);
  }
  b.scope("output");
  x = norm(b, m, "head_norm", gelu(b, b.linear_with_bias(x, "head", m.C, m.C)));
  const TensorId weight = m.tied ? table : b.parameter("output.weight", {m.V, m.C});
  const TensorId bias = b.parameter("output.bias", {m.V});
  b.output("logits", b.op("matmul", {x, weight, bias}, {{"trans_w", int64_t{1}}}));
  return b.finish();
}

namespace {
constexpr NameRule kGguf[] = {{"token_embedding", "token_embd.weight"},
                              {"position_embedding", "position_embd.weight"},
                              {"embedding_norm.weight", "token_embd_norm.weight"},
                              {"embedding_norm.bias", "token_embd_norm.bias"},
                              {"output.weight", "output.weight"},
                              {"block.#.q.weight", "blk.#.attn_q.weight"},
                              {"block.#.q.bias", "blk.#.attn_q.bias"},
                              {"block.#.k.weight", "blk.#.attn_k.weight"},
                              {"block.#.k.bias", "blk.#.attn_k.bias"},
                              {"block.#.v.weight", "blk.#.attn_v.weight"},
                              {"block.#.v.bias", "blk.#.attn_v.bias"},
                              {"block.#.o.weight", "blk.#.attn_output.weight"},
                              {"block.#.o.bias", "blk.#.attn_output.bias"},
                              {"block.#.norm1.weight", "blk.#.attn_output_norm.weight"},
                              {"block.#.norm1.bias", "blk.#.attn_output_norm.bias"},
                              {"block.#.fc.weight", "blk.#.ffn_up.weight"},
                              {"block.#.fc.bias", "blk.#.ffn_up.bias"},
                              {"block.#.proj.weight", "blk.#.ffn_down.weight"},
                              {"block.#.proj.bias", "blk.#.ffn_down.bias"},
                              {"block.#.norm2.weight", "blk.#.layer_output_norm.weight"},
                              {"block.#.norm2.bias", "blk.#.layer_output_norm.bias"}};
}  // namespace
constexpr std::span<const NameRule> kEncoderGgufNames = kGguf;

}  // namespace tessera
