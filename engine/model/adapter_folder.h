// A folder of adapters (PEFT's) that stands for a model: its base with the adapters.
#pragma once

#include <string>

#include "graph/base/result.h"

namespace tessera {

// Whether the folder holds adapters and no model.
bool is_adapter_folder(const std::string& path);
// The path of the base that such a folder names. kNotFound, with the remedy, where it names none or that is not there.
Result<std::string> base_of_adapters(const std::string& folder);

}  // namespace tessera
