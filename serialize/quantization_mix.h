// QuantizationMix: the element type of each weight, from a name such as "q4_k_m", by
// llama.cpp's rules: most weights have the mix's type, the most sensitive ones a wider one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// WeightRole: a weight's role in its model.
enum class WeightRole : uint8_t {
  kOther,
  kKept,  // keeps its type: expert routers, position tables, adapters
  kEmbedding,
  kOutput,  // the head, or a tied embedding
  kQ,
  kK,
  kV,  // also a fused query, key and value tensor
  kO,
  kGate,
  kUp,
  kDown,
};

struct MixSettings {
  std::string type = "q4_k_m";                                 // a mix, or an element type
  bool pure = false;                                           // every weight has the mix's own type
  std::optional<DType> output_type = {}, embedding_type = {};  // overrides for the head and the token embedding
  bool has_importance = false;                                 // an importance matrix is available
};

// Valid names of `type`; mixes precede, in the order of their element types.
std::vector<std::string> mix_names();
// kInvalidArgument names the nearest and lists all; kUnsupported for types that can only be read.
Status check_mix_name(std::string_view name);
// An element type by name, with these errors.
Result<DType> encodable_type(std::string_view name);

struct TypeChoice {
  DType type = DType::kF32;
  DType wanted = DType::kF32;  // by the rules; `type` differs if the width is no multiple of its block
  WeightRole role = WeightRole::kOther;
};
using TypeChoices = std::map<std::string, TypeChoice, std::less<>>;

// Types of all weights of an f32 graph (with_logical_weights)
// that may be quantized. `family`: metadata "architecture".
Result<TypeChoices> choose_types(const Graph& graph, std::string_view family, const MixSettings& settings);

// A type whose block divides `width`: `wanted`, or llama.cpp's replacement, f16 at last.
DType fit_type(DType wanted, int64_t width);

}  // namespace tessera
