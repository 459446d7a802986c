#include "parallel/analytic/transformer.h"

#include "graph/base/text.h"

namespace tessera {

Result<TransformerShape> transformer_shape(const ModelConfig& config) {
  TransformerShape m;
  const bool llama = config.family == "llama";
  if (!llama && config.family != "gpt2")
    return Status(StatusCode::kUnsupported,
                  format("'{}' is not a transformer family that a step can be priced for; known: gpt2, llama",
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
  const int64_t D = C / H, products = 2 * C * C + 2 * C * KV * D + (gated ? 3 : 2) * C * F;
  return products + (biases ? 2 * C + 2 * KV * D + F + C : 0) + (biases ? 4 : 2) * C;
}
int64_t TransformerShape::embedding_parameters() const { return V * C + (positions ? T * C : 0); }
int64_t TransformerShape::head_parameters() const { return V * C + (biases ? 2 : 1) * C; }
int64_t TransformerShape::parameters() const {
  return L * block_parameters() + embedding_parameters() + head_parameters() - (tied ? V * C : 0);
}

}  // namespace tessera
