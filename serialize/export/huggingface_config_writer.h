// A model's configuration as config.json of a Hugging Face folder: the inverse
// of import/huggingface_config.h, which reads the result back for comparison.
#pragma once

#include <optional>

#include "graph/base/result.h"
#include "serialize/export/exported_config.h"
#include "text/json.h"

namespace tessera {

// The object without dtype and tokens. kUnsupported names what transformers' class lacks.
Result<Json> write_huggingface_config(const ExportedConfig& model, const std::optional<RopeFactors>& factors);

}  // namespace tessera
