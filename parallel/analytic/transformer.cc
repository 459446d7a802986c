#include "parallel/analytic/transformer.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera {

Result<TransformerShape> transformer_shape(const ModelConfig& config) {
  TransformerShape m;
  const bool experts = config.family == "moe", llama = config.family == "llama" || experts;
  if (!llama && config.family != "gpt2")
    return Status(
        StatusCode::kUnsupported,
        format("'{}' is not a transformer family that a step can be priced for; known: gpt2, llama, moe",
               config.family));
  std::string missing;
  const auto size = [&](const char* name, int64_t fallback = 0) {
    const auto at = config.sizes.find(name);
    const int64_t value = at == config.sizes.end() ? fallback : at->second;
    if (value <= 0 && missing.empty()) missing = name;
    return value;
  };
  m.L = size("L"), m.C = size("C"), m.H = size("H"), m.V = size("V"), m.T = size("T");
  m.KV = size("KV", m.H);
  m.F = llama ? size("F") : size("F", 4 * m.C);
  if (experts) {
    m.E = size("E"), m.K = size("K", 2);
    const auto capacity = config.reals.find("capacity");
    m.capacity = capacity == config.reals.end() ? 1.25 : std::max(1.0, capacity->second);
  }
  if (!missing.empty())
    return Status(StatusCode::kInvalidArgument,
                  format("'{}' needs {} to be positive; an example: {}", config.family, missing,
                         find_model_family(config.family)->example));
  if (m.C % m.H != 0)
    return Status(StatusCode::kInvalidArgument,
                  format("C = {} channels do not divide into H = {} heads", m.C, m.H));
  m.gated = llama;
  m.biases = m.positions = !llama;
  const auto tied = config.flags.find("tied");
  m.tied = tied == config.flags.end() ? !llama : tied->second;
  const auto dropout = config.reals.find("dropout");
  m.dropout = dropout == config.reals.end() ? (llama ? 0 : 0.1) : dropout->second;
  return m;
}

int64_t TransformerShape::block_parameters() const {
  const int64_t D = C / H, attention = 2 * C * C + 2 * C * KV * D;
  const int64_t feed_forward = E > 0 ? expert_parameters() + C * E : (gated ? 3 : 2) * C * F;
  return attention + feed_forward + (biases ? 2 * C + 2 * KV * D + F + C : 0) + (biases ? 4 : 2) * C;
}
int64_t TransformerShape::expert_parameters() const { return E * (gated ? 3 : 2) * C * F; }
TransformerShape::Adapters TransformerShape::adapter_parameters(int64_t rank) const {
  // Queries, keys, values (columns split), the mix (rows split), and the feed-forward's.
  const int64_t D = C / H;
  Adapters adapters{rank * (3 * C + C), rank * (C + 2 * KV * D + C)};
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
