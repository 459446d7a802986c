// QuantizationMix: the element type of each weight of a model, from one name such as "q4_k_m", by llama.cpp's
// rules: most weights have the mix's type, those that cost the most accuracy a wider one.
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

// A weight's place in its model.
enum class WeightRole : uint8_t {
  kOther,
  kKept,  // keeps its type: routers of experts, tables of positions, adapters
  kEmbedding,
  kOutput,  // the head, or an embedding that is the head too
  kQ,
  kK,
  kV,  // also query, key and value in one tensor of the file
  kO,
  kGate,
  kUp,
  kDown,
};

struct MixSettings {
  std::string type = "q4_k_m";                                 // a mix, or an element type
  bool pure = false;                                           // every weight has the mix's own type
  std::optional<DType> output_type = {}, embedding_type = {};  // of the head, of the token embedding
  bool has_importance = false;                                 // encoders are given importance
};

// The names that `type` may have; mixes first have their element type's order.
std::vector<std::string> mix_names();
// kInvalidArgument names the nearest and lists all; kUnsupported for types that can be read alone.
Status check_mix_name(std::string_view name);
// An element type by name, with the same errors.
Result<DType> encodable_type(std::string_view name);

struct TypeChoice {
  DType type = DType::kF32;
  DType wanted = DType::kF32;  // by the rules; `type` is another where the width is no multiple of its block
  WeightRole role = WeightRole::kOther;
};
using TypeChoices = std::map<std::string, TypeChoice, std::less<>>;

// For each weight of a graph of f32 weights (with_logical_weights) that may be stored in blocks. `family`:
// the model's metadata "architecture".
Result<TypeChoices> choose_types(const Graph& graph, std::string_view family, const MixSettings& settings);

// A type whose block divides `width`: `wanted`, or what llama.cpp puts in its place, f16 at last.
DType fit_type(DType wanted, int64_t width);

}  // namespace tessera
