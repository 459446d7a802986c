// Paths that a model was read from; output must not replace them, since the model would be lost.
#pragma once

#include <string>
#include <vector>

#include "graph/base/status.h"

namespace tessera {

// kInvalidArgument if `out` is one of the files or folders `read`, or the folder of
// one. `resumed`: a checkpoint whose run's own result may be replaced; "": none.
Status check_not_read(const std::vector<std::string>& read, const std::string& out, const std::string& resumed = "");

}  // namespace tessera
