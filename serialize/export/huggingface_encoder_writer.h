// The config.json of an encoder, and the names of its tensors there.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "serialize/export/exported_config.h"
#include "serialize/tensor_source.h"
#include "text/json.h"

namespace tessera {

// kUnsupported names what transformers' class has no word for.
Result<Json> write_huggingface_encoder(const ExportedConfig& model);
// Names of `count` classes, and how scores are made of their logits.
void put_labels(Json& json, const ExportedConfig& model, int64_t count);
// Puts the class's name before the tensors below its head.
void name_encoder_tensors(std::vector<TensorSource>& tensors, const ExportedConfig& model);

}  // namespace tessera
