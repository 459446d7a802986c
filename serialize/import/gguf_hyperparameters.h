// Reads a GGUF file's hyperparameters into a ModelConfig of the architecture's
// family. A key that changes results in an unsupported way is refused by name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/models/model_family.h"
#include "serialize/import/gguf_file.h"
#include "serialize/import/rope_scaling.h"

namespace tessera {

// The epsilon of the norms of latent vectors, where it differs from that of all others.
inline constexpr std::string_view kLatentNormEpsilonKey = "tessera.latent_norm_epsilon";

struct GgufHyperparameters {
  ModelConfig config;  // V, `tied` and biases are determined by tensors
  std::optional<RopeScaling> scaling;
  int64_t draft_blocks = 0;     // after the model's layers, in the file
  bool may_have_biases = false;  // at q, k, v, o and in the feed-forward
  bool may_lack_values = false;  // tensors of v: values are the keys' projection there
  // For rotations with factor tensors: length beyond which the second row applies.
  int64_t original_context = 0;
  double attention_factor = 1;
};

Result<GgufHyperparameters> read_gguf_hyperparameters(const GgufFile& file, std::string_view architecture);

}  // namespace tessera
