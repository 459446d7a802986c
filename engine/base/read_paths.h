// Paths that a model is read from: nothing that is written may take their place, since the model would be lost.
#pragma once

#include <string>
#include <vector>

#include "graph/base/status.h"

namespace tessera {

// kInvalidArgument where `out` is one of the files or folders `read`, or the folder of one. `resumed`: the checkpoint of the
// run that is resumed, whose own result may be replaced; "": none.
Status check_not_read(const std::vector<std::string>& read, const std::string& out, const std::string& resumed = "");

}  // namespace tessera
