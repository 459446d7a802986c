// A model's sizes as the keys of a GGUF file: the way back of import/gguf_hyperparameters.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "serialize/export/exported_config.h"
#include "serialize/export/gguf_writer.h"

namespace tessera {

struct GgufKeys {
  std::string architecture;
  bool rope_half = false;             // the order of rotated rows there
  std::vector<TensorSource> factors;  // tensors that rotations are scaled by
  std::vector<std::string> notes;
};

// Writes the keys of the architecture. kUnsupported names what llama.cpp's model of it has no word for.
Result<GgufKeys> write_gguf_keys(const ExportedConfig& model, const std::optional<RopeFactors>& factors,
                                 GgufWriter& out);

}  // namespace tessera
