// Hyper-parameters of a GGUF file -> the ModelConfig of our family of that architecture. A key whose value
// changes what is computed, in a way that the family does not have, is refused by name.
#pragma once

#include "graph/base/result.h"
#include "graph/models/model_family.h"
#include "serialize/import/gguf_file.h"

namespace tessera {

// V and `tied` are the tensors' to say.
Result<ModelConfig> read_llama_hyperparameters(const GgufFile& file);
Result<ModelConfig> read_gpt2_hyperparameters(const GgufFile& file);

}  // namespace tessera
