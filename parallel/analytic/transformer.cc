#include "parallel/analytic/transformer.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera {

namespace {

// Sizes beyond any model, so that bytes and FLOPs of what is priced can be counted.
constexpr int64_t kLongestContext = int64_t{1} << 24;
constexpr double kMostParameters = 1e15;

// What the family's builder says of these sizes and names, without building more than one block.
Status check_sizes(const ModelConfig& config) {
  ModelConfig one = config;
  if (const auto blocks = one.sizes.find("L"); blocks != one.sizes.end())
    blocks->second = std::min<int64_t>(blocks->second, 1);
  return build_model(one).status();
}

// Those of parameters(), in doubles, which do not overflow.
double rough_parameters(const TransformerShape& m) {
  const double C = static_cast<double>(m.C), experts = static_cast<double>(std::max<int64_t>(m.E, 1));
  const double attention = 2 * C * static_cast<double>(m.H + m.KV) * static_cast<double>(m.head_size());
  return static_cast<double>(m.L) * (attention + experts * (m.gated ? 3 : 2) * C * static_cast<double>(m.F)) +
         2 * static_cast<double>(m.V) * C;
}

}  // namespace

Result<TransformerShape> transformer_shape(const ModelConfig& config) {
  TransformerShape m;
  const bool experts = config.family == "moe", llama = config.family == "llama" || experts;
  if (!llama && config.family != "gpt2")
    return Status(
        StatusCode::kUnsupported,
        format("'{}' is not a transformer family that a step can be priced for; known: gpt2, llama, moe",
               config.family));
  TSR_RETURN_IF_ERROR(check_sizes(config));
  const auto size = [&](const char* name, int64_t fallback = 0) {
    const auto at = config.sizes.find(name);
    return at == config.sizes.end() ? fallback : at->second;
  };
  m.L = size("L"), m.C = size("C"), m.H = size("H"), m.V = size("V"), m.T = size("T");
  m.KV = size("KV", m.H);
  m.D = size("D");
  m.F = llama ? size("F") : size("F", 4 * m.C);
  if (experts) {
    m.E = size("E"), m.K = size("K", 2);
    const auto capacity = config.reals.find("capacity");
    m.capacity = capacity == config.reals.end() ? 1.25 : std::max(1.0, capacity->second);
  }
  m.gated = llama;
  m.biases = m.positions = !llama;
  const auto tied = config.flags.find("tied");
  m.tied = tied == config.flags.end() ? !llama : tied->second;
  const auto dropout = config.reals.find("dropout");
  m.dropout = dropout == config.reals.end() ? (llama ? 0 : 0.1) : dropout->second;
  const std::string_view example = find_model_family(config.family)->example;
  if (m.T > kLongestContext)
    return Status(StatusCode::kUnsupported,
                  format("T = {} tokens, wanted at most {} where a step is priced; an example: {}", m.T,
                         kLongestContext, example));
  if (rough_parameters(m) > kMostParameters)
    return Status(StatusCode::kUnsupported,
                  format("a model of {} parameters, wanted at most {} where a step is priced; an example: {}",
                         rough_parameters(m), kMostParameters, example));
  return m;
}

int64_t TransformerShape::block_parameters() const {
  const int64_t kv = KV * head_size(), mixed = mixed_width(), attention = 2 * C * mixed + 2 * C * kv;
  const int64_t feed_forward = E > 0 ? expert_parameters() + C * E : (gated ? 3 : 2) * C * F;
  return attention + feed_forward + (biases ? mixed + C + 2 * kv + F + C : 0) + (biases ? 4 : 2) * C;
}
int64_t TransformerShape::expert_parameters() const { return E * (gated ? 3 : 2) * C * F; }
TransformerShape::Adapters TransformerShape::adapter_parameters(int64_t rank) const {
  // Queries, keys, values (columns split), the mix (rows split), and the feed-forward's.
  const int64_t kv = KV * head_size(), mixed = mixed_width();
  Adapters adapters{rank * (3 * C + C), rank * (mixed + 2 * kv + mixed)};
  if (E == 0) {
    const int64_t in = gated ? 2 : 1;
    adapters.whole += rank * (in * C + C);
    adapters.split += rank * (in * F + F);
  }
  return adapters;
}
int64_t TransformerShape::embedding_parameters() const { return V * C + (positions ? T * C : 0); }
int64_t TransformerShape::head_parameters() const { return V * C + (biases ? 2 : 1) * C; }
int64_t TransformerShape::parameters() const {
  return L * block_parameters() + embedding_parameters() + head_parameters() - (tied ? V * C : 0);
}

}  // namespace tessera
