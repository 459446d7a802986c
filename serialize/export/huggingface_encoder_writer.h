// Exports an encoder's config.json and tensor names.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "serialize/export/exported_config.h"
#include "serialize/tensor_source.h"
#include "text/json.h"

namespace tessera {

// kUnsupported names what transformers' class lacks.
Result<Json> write_huggingface_encoder(const ExportedConfig& model);
// Writes the names of `count` classes, and the function from logits to scores.
void put_labels(Json& json, const ExportedConfig& model, int64_t count);
// Prefixes the tensors below a head with the class's name.
void name_encoder_tensors(std::vector<TensorSource>& tensors, const ExportedConfig& model);

}  // namespace tessera
