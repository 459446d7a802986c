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

// kUnsupported: transformers' class has no setting for a feature of the model; the message names it.
Result<Json> write_huggingface_encoder(const ExportedConfig& model);
// Writes id2label and label2id of `count` classes, problem_type, and sentence-transformers' activation_fn.
void put_labels(Json& json, const ExportedConfig& model, int64_t count);
// Prefixes the tensors below a head with the class's name.
void name_encoder_tensors(std::vector<TensorSource>& tensors, const ExportedConfig& model);

}  // namespace tessera
