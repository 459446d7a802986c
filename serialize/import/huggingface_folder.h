// A Hugging Face folder: config.json, *.safetensors, tokenizer and chat template.
#pragma once

#include <memory>
#include <string>

#include "graph/base/result.h"
#include "serialize/model.h"
#include "serialize/opened_model.h"

namespace tessera {

// `source`: any safetensors file of the folder. Checks structure and offsets
// of untrusted files; values stay in them. model.source reads all of them.
Result<OpenedModel> open_huggingface(const std::shared_ptr<const ByteSource>& source);

}  // namespace tessera
