// A model's configuration as the config.json of a Hugging Face folder: the way back of import/huggingface_config.h,
// through which what is written is read again and compared.
#pragma once

#include <optional>

#include "graph/base/result.h"
#include "serialize/export/exported_config.h"
#include "text/json.h"

namespace tessera {

// The object, without dtype and tokens. kUnsupported names what transformers' class of the family has no word for.
Result<Json> write_huggingface_config(const ExportedConfig& model, const std::optional<RopeFactors>& factors);

}  // namespace tessera
