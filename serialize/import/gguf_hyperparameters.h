// Hyper-parameters of a GGUF file -> the ModelConfig of our family of that architecture. A key whose value
// changes what is computed, in a way that the family does not have, is refused by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/models/model_family.h"
#include "serialize/import/gguf_file.h"
#include "serialize/import/rope_scaling.h"

namespace tessera {

struct GgufHyperparameters {
  ModelConfig config;  // V, `tied` and biases are the tensors' to say
  std::optional<RopeScaling> scaling;
  bool may_have_biases = false;  // at q, k and v, at o, and in the feed-forward half
  // Of rotations whose factors are tensors, one row of them for sequences that are longer.
  int64_t original_context = 0;
  double attention_factor = 1;
};

bool is_known_gguf_architecture(std::string_view name);
std::string known_gguf_architectures();  // "gemma2, gemma3, …"
Result<GgufHyperparameters> read_gguf_hyperparameters(const GgufFile& file, std::string_view architecture);

}  // namespace tessera
