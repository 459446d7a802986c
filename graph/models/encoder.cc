#include "graph/models/encoder.h"

#include <string_view>

#include "graph/base/text.h"

namespace tessera {

EncoderSizes read_encoder_sizes(ConfigReader& config, double norm_eps) {
  EncoderSizes m;
  m.L = config.size("L");
  m.C = config.size("C");
  m.H = config.size("H");
  m.F = config.size("F", 4 * m.C);
  m.V = config.size("V");
  m.T = config.size("T");
  m.N = config.size("N", 0);
  m.pooler = config.flag("pooler", false);
  m.mlm = config.flag("mlm", m.N == 0 && !m.pooler);
  m.norm_eps = config.real("norm_eps", norm_eps);
  m.tied = config.flag("tied", true);
  m.dense = read_dense_modules(config);
  config.check(m.H > 0 && m.C % m.H == 0,
               format("C = {} channels do not divide into H = {} heads", m.C, m.H));
  config.check(static_cast<int>(m.mlm) + static_cast<int>(m.N > 0) + static_cast<int>(m.pooler) <= 1,
               format("mlm = {}, N = {} and pooler = {}, wanted one head or none", m.mlm ? 1 : 0, m.N,
                      m.pooler ? 1 : 0));
  return m;
}

namespace {

class EncoderBuilder {
 public:
  explicit EncoderBuilder(const EncoderSizes& m) : m_(m), D_(m.C / m.H) {}

  Result<Graph> run() {
    const int64_t B = b_.symbol("B"), T = b_.symbol("T", m_.T);
    const TensorId tokens = b_.input("tokens", DType::kI32, {B, T});
    positions_ = b_.input("positions", DType::kI32, {B, T});
    const TensorId types = m_.Y > 0 ? b_.input("token_types", DType::kI32, {B, T}) : kNoTensor;

    b_.scope("embedding");
    const TensorId table = b_.parameter("token_embedding", {m_.V, m_.C});
    if (!m_.norm_bias) zero_bias_ = b_.constant(std::string(kZeroBias), {m_.C});
    TensorId x = embed(tokens, types, table);
    for (int64_t i = 0; i < m_.L; ++i) {
      x = attention(static_cast<size_t>(i), x);
      x = feed_forward(static_cast<size_t>(i), x);
    }
    b_.scope("output");
    if (m_.pre_norm) x = norm("output_norm", x);
    add_outputs(x, table);
    return b_.finish();
  }

 private:
  TensorId norm(const std::string& name, TensorId x) {
    const TensorId weight = b_.parameter(name + ".weight", {m_.C});
    const TensorId bias = m_.norm_bias ? b_.parameter(name + ".bias", {m_.C}) : zero_bias_;
    return b_.op("layer_norm", {x, weight, bias}, {{"eps", m_.norm_eps}});
  }

  TensorId linear(TensorId x, const std::string& name, int64_t k, int64_t n, bool bias) {
    return bias ? b_.linear_with_bias(x, name, k, n) : b_.linear(x, name + ".weight", k, n);
  }

  TensorId gelu(TensorId x) { return b_.op("gelu", {x}, {{"approximate", std::string("none")}}); }

  TensorId embed(TensorId tokens, TensorId types, TensorId table) {
    TensorId x = b_.op("embedding", {table, tokens});  // [B, T, C]
    if (types != kNoTensor)
      x = b_.op("add", {x, b_.op("embedding", {b_.parameter("token_type_embedding", {m_.Y, m_.C}), types})});
    if (m_.learned_positions) {
      const int64_t first = m_.position_offset;
      TensorId rows = b_.parameter("position_embedding", {m_.T + first, m_.C});
      if (first > 0)
        rows = b_.op("slice", {rows}, {{"dim", int64_t{0}}, {"begin", first}, {"end", m_.T + first}});
      x = b_.op("add", {x, b_.op("embedding", {rows, positions_})});
    }
    return norm("embedding_norm", x);
  }

  // The attention half of a block, added to x.
  TensorId attention(size_t layer, TensorId x) {
    const std::string block = format("block.{}", layer);
    b_.scope(block + ".attention");
    const bool has_norm = !m_.pre_norm || layer > 0;
    const TensorId read = m_.pre_norm && has_norm ? norm(block + ".norm1", x) : x;
    const int64_t window = m_.windows.empty() ? 0 : m_.windows[layer];
    const double theta = window > 0 && m_.window_theta > 0 ? m_.window_theta : m_.rope_theta;
    const auto heads = [&](std::string_view name, bool turns) {  // [B, T, H, D]
      const TensorId y = b_.split_heads(linear(read, format("{}.{}", block, name), m_.C, m_.C, m_.bias), D_);
      return turns && theta > 0
                 ? b_.op("rope", {y, positions_}, {{"theta", theta}, {"style", std::string("half")}})
                 : y;
    };
    const TensorId q = heads("q", true), k = heads("k", true), v = heads("v", false);
    std::vector<Attr> attrs = {{"causal", int64_t{0}}};
    if (window > 0) attrs.push_back({"window", window});
    const TensorId mixed = b_.op("attention", {q, k, v}, std::move(attrs));
    const TensorId sum = b_.op("add", {x, linear(b_.merge_heads(mixed), block + ".o", m_.C, m_.C, m_.bias)});
    return m_.pre_norm ? sum : norm(block + ".norm1", sum);
  }

  // The feed-forward half, added to x.
  TensorId feed_forward(size_t layer, TensorId x) {
    const std::string block = format("block.{}", layer);
    b_.scope(block + ".ffn");
    const TensorId read = m_.pre_norm ? norm(block + ".norm2", x) : x;
    TensorId added = kNoTensor;
    if (m_.gate == EncoderSizes::Gate::kNone) {
      added = linear(gelu(linear(read, block + ".fc", m_.C, m_.F, m_.bias)), block + ".proj", m_.F, m_.C,
                     m_.bias);
    } else {
      const TensorId gate = linear(read, block + ".gate", m_.C, m_.F, m_.bias);
      const TensorId up = linear(read, block + ".up", m_.C, m_.F, m_.bias);
      const TensorId product =
          m_.gate == EncoderSizes::Gate::kSilu ? b_.op("swiglu", {gate, up}) : b_.op("mul", {gelu(gate), up});
      added = linear(product, block + ".down", m_.F, m_.C, m_.bias);
    }
    const TensorId sum = b_.op("add", {x, added});
    return m_.pre_norm ? sum : norm(block + ".norm2", sum);
  }

  // A dense layer, its activation, and a norm.
  TensorId normed_head(TensorId x) {
    const TensorId dense = linear(x, "head", m_.C, m_.C, m_.head_bias);
    return norm("head_norm", m_.head_silu ? b_.op("silu", {dense}) : gelu(dense));
  }

  void add_outputs(TensorId x, TensorId table) {
    if (m_.mlm) {
      const TensorId y = normed_head(x);
      const TensorId weight = m_.tied ? table : b_.parameter("output.weight", {m_.V, m_.C});
      b_.output("logits", m_.output_bias ? b_.op("matmul", {y, weight, b_.parameter("output.bias", {m_.V})},
                                                 {{"trans_w", int64_t{1}}})
                                         : b_.project(y, weight));
    } else if (m_.N > 0) {
      b_.output("logits", b_.linear_with_bias(classified(x), "classifier", m_.C, m_.N));
    } else if (m_.pooler) {
      b_.output("pooled", b_.op("tanh", {b_.linear_with_bias(x, "pooler", m_.C, m_.C)}));
    }
    if (m_.hidden) b_.output("hidden", add_dense_modules(b_, m_.dense, x, m_.C));
  }

  // The mean of a text's vectors at each of its tokens: attention to all of
  // them with equal scores, which separates texts as other attention does.
  TensorId mean_of_text(TensorId x) {
    const TensorId values = b_.split_heads(x, D_), zeros = b_.op("zeros_like", {values});
    return b_.merge_heads(b_.op("attention", {zeros, zeros, values}, {{"causal", int64_t{0}}}));
  }

  // The input of the classifier at every token; that at a text's first token counts.
  TensorId classified(TensorId x) {
    if (m_.class_mean) x = mean_of_text(x);
    switch (m_.classifier) {
      case EncoderSizes::Classifier::kPooler:
        return b_.op("tanh", {b_.linear_with_bias(x, "pooler", m_.C, m_.C)});
      case EncoderSizes::Classifier::kTanh:
        return b_.op("tanh", {b_.linear_with_bias(x, "pre_classifier", m_.C, m_.C)});
      case EncoderSizes::Classifier::kRelu:
        return b_.op("relu", {b_.linear_with_bias(x, "pre_classifier", m_.C, m_.C)});
      case EncoderSizes::Classifier::kNormed: break;
    }
    return normed_head(x);
  }

  const EncoderSizes& m_;
  const int64_t D_;
  LayerBuilder b_;
  TensorId positions_ = kNoTensor, zero_bias_ = kNoTensor;
};

}  // namespace

Result<EncoderSizes> encoder_sizes(const ModelConfig& config, ReadEncoderSizes read) {
  LayerBuilder b;
  ConfigReader reader(config, b);
  EncoderSizes sizes = read(reader);
  reader.check(sizes.hidden || sizes.dense.widths.empty(), "dense in a model without hidden states as output, wanted none");
  if (!reader.done()) return b.finish().status();
  return sizes;
}

Result<Graph> build_encoder_model(const ModelConfig& config, ReadEncoderSizes read) {
  TSR_ASSIGN_OR_RETURN(const EncoderSizes m, encoder_sizes(config, read));
  return EncoderBuilder(m).run();
}

namespace {

constexpr NameRule kGguf[] = {{"token_embedding", "token_embd.weight"},
                              {"position_embedding", "position_embd.weight"},
                              {"token_type_embedding", "token_types.weight"},
                              {"embedding_norm.weight", "token_embd_norm.weight"},
                              {"embedding_norm.bias", "token_embd_norm.bias"},
                              {"output.weight", "output.weight"},
                              {"classifier.weight", "cls.output.weight"},
                              {"classifier.bias", "cls.output.bias"},
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

// Classifiers with a dense layer before that of the classes.
constexpr NameRule kDenseClassifierGguf[] = {{"pre_classifier.weight", "cls.weight"}, {"pre_classifier.bias", "cls.bias"}};

constexpr NameRule kBertHuggingface[] = {
    {"token_embedding", "embeddings.word_embeddings.weight"},
    {"position_embedding", "embeddings.position_embeddings.weight"},
    {"token_type_embedding", "embeddings.token_type_embeddings.weight"},
    {"embedding_norm.weight", "embeddings.LayerNorm.weight"},
    {"embedding_norm.bias", "embeddings.LayerNorm.bias"},
    {"block.#.q.weight", "encoder.layer.#.attention.self.query.weight"},
    {"block.#.q.bias", "encoder.layer.#.attention.self.query.bias"},
    {"block.#.k.weight", "encoder.layer.#.attention.self.key.weight"},
    {"block.#.k.bias", "encoder.layer.#.attention.self.key.bias"},
    {"block.#.v.weight", "encoder.layer.#.attention.self.value.weight"},
    {"block.#.v.bias", "encoder.layer.#.attention.self.value.bias"},
    {"block.#.o.weight", "encoder.layer.#.attention.output.dense.weight"},
    {"block.#.o.bias", "encoder.layer.#.attention.output.dense.bias"},
    {"block.#.norm1.weight", "encoder.layer.#.attention.output.LayerNorm.weight"},
    {"block.#.norm1.bias", "encoder.layer.#.attention.output.LayerNorm.bias"},
    {"block.#.fc.weight", "encoder.layer.#.intermediate.dense.weight"},
    {"block.#.fc.bias", "encoder.layer.#.intermediate.dense.bias"},
    {"block.#.proj.weight", "encoder.layer.#.output.dense.weight"},
    {"block.#.proj.bias", "encoder.layer.#.output.dense.bias"},
    {"block.#.norm2.weight", "encoder.layer.#.output.LayerNorm.weight"},
    {"block.#.norm2.bias", "encoder.layer.#.output.LayerNorm.bias"},
    {"pooler.weight", "pooler.dense.weight"},
    {"pooler.bias", "pooler.dense.bias"},
    {"classifier.weight", "classifier.weight"},
    {"classifier.bias", "classifier.bias"},
    {"head.weight", "cls.predictions.transform.dense.weight"},
    {"head.bias", "cls.predictions.transform.dense.bias"},
    {"head_norm.weight", "cls.predictions.transform.LayerNorm.weight"},
    {"head_norm.bias", "cls.predictions.transform.LayerNorm.bias"},
    {"output.weight", "cls.predictions.decoder.weight"},
    {"output.bias", "cls.predictions.bias"},
};

}  // namespace

constexpr std::span<const NameRule> kEncoderGgufNames = kGguf, kDenseClassifierGgufNames = kDenseClassifierGguf,
                                    kBertHuggingfaceNames = kBertHuggingface;

}  // namespace tessera
