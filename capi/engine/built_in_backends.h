// The backends linked into the library. The registry gets them as entry functions, like those that a plugin
// exports.
#pragma once

#include <vector>

#include "runtime/backend_abi.h"

namespace tessera {

std::vector<tsr_backend_entry> built_in_backends();

}  // namespace tessera
