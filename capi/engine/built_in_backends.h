// The backends linked into the library. They reach the registry as entry functions, the same that a plugin
// exports.
#pragma once

#include <vector>

#include "runtime/backend_abi.h"

namespace tessera {

std::vector<tsr_backend_entry> built_in_backends();

}  // namespace tessera
