// A model as a GGUF file that llama.cpp loads.
#pragma once

#include <string>

#include "graph/base/result.h"
#include "serialize/export/tensor_file.h"
#include "serialize/opened_model.h"

namespace tessera {

struct GgufExportSettings {
  std::string mix;        // the mix that the matrices are in; empty: they are as they were
  bool tokenizer = true;  // false: it is left out
};

// The file; values are read as it is written. Matrices have the types of their sources; what llama.cpp reads only in f32
// (norms, biases, routers, tables of positions) is f32. `opened` gives up its sources. kUnsupported names what llama.cpp
// has no form for.
Result<ExportContents> gguf_contents(OpenedModel& opened, const GgufExportSettings& settings);

}  // namespace tessera
