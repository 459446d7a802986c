// A model as a GGUF file that llama.cpp loads.
#pragma once

#include <string>

#include "graph/base/result.h"
#include "serialize/export/tensor_file.h"
#include "serialize/opened_model.h"

namespace tessera {

struct GgufExportSettings {
  std::string mix;        // the mix of the matrices; empty: unchanged types
  bool tokenizer = true;  // false: omitted
};

// Values are read while the file is written. Matrices keep their sources' types; tensors
// that llama.cpp reads only as f32 (norms, biases, routers, position tables) are f32.
// Consumes the sources of `opened`. kUnsupported names the part that llama.cpp lacks.
Result<ExportContents> gguf_contents(OpenedModel& opened, const GgufExportSettings& settings);

}  // namespace tessera
