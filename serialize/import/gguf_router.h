// The router of experts in a GGUF file.
#pragma once

#include <string>

#include "graph/base/result.h"
#include "serialize/import/gguf_file.h"

namespace tessera {

// kUnsupported unless experts are weighed by a softmax, without shared ones that a key counts. `of_chosen`: also by a softmax of
// the chosen scores alone.
Status check_softmax_router(const GgufFile& file, const std::string& prefix, bool of_chosen);

}  // namespace tessera
