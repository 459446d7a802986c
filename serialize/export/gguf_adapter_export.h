// Exports low-rank adapters as a GGUF file for llama.cpp.
#pragma once

#include "graph/base/result.h"
#include "serialize/export/tensor_file.h"
#include "serialize/opened_model.h"

namespace tessera {

// Reads all values. Factors are alpha / rank of one alpha; deviations are multiplied into the second
// matrix. kFailedPrecondition without adapters, kUnsupported for parts that the format lacks.
Result<ExportContents> gguf_adapter_contents(OpenedModel& opened);

}  // namespace tessera
