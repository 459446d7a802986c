// A model's low-rank adapters as a GGUF file that llama.cpp puts on the base.
#pragma once

#include "graph/base/result.h"
#include "serialize/export/tensor_file.h"
#include "serialize/opened_model.h"

namespace tessera {

// The file; values are read here. Factors are alpha / rank of one alpha, and where they differ multiply the second
// matrix. kFailedPrecondition for a model without adapters, kUnsupported for what the format has no form for.
Result<ExportContents> gguf_adapter_contents(OpenedModel& opened);

}  // namespace tessera
