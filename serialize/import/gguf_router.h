// The router of experts in a GGUF file.
#pragma once

#include "graph/base/result.h"
#include "graph/models/gguf_keys.h"
#include "serialize/import/gguf_file.h"

namespace tessera {

// kUnsupported unless experts are weighed as in the architecture: by a sigmoid; or by a softmax, perhaps of the chosen scores alone,
// without shared experts that a key counts.
Status check_router(const GgufFile& file, const GgufArchitecture& architecture);

}  // namespace tessera
