// A model's sizes as keys of a GGUF file: the inverse of import/gguf_hyperparameters.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "serialize/export/exported_config.h"
#include "serialize/export/gguf_writer.h"

namespace tessera {

struct WrittenKeys {
  std::string architecture;
  bool rope_half = false;             // row order of rotated heads in the file
  bool turned = false;                // order of the heads of values in recurrent layers
  std::vector<TensorSource> factors;  // tensors of rotation factors
  std::vector<std::string> notes;
};

// Writes the architecture's keys. kUnsupported names what llama.cpp lacks.
Result<WrittenKeys> write_gguf_keys(const ExportedConfig& model, const std::optional<RopeFactors>& factors,
                                 GgufWriter& out);

}  // namespace tessera
