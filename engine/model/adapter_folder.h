// PEFT folders of adapters used as models: the base with the adapters.
#pragma once

#include <string>

#include "graph/base/result.h"

namespace tessera {

// Whether the folder holds adapters and no model.
bool is_adapter_folder(const std::string& path);
// The path of the base that the folder names. kNotFound, with the remedy, if none is named or present.
Result<std::string> base_of_adapters(const std::string& folder);

}  // namespace tessera
