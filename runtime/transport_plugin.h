// Transports are plugins: libtessera_NAME.so, found where backends are.
#pragma once

#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "runtime/transport_abi.h"

namespace tessera {

// Loads the plugin of transport `name`, once in a process. `plugin_path`: see RegistryOptions. kNotFound without the file, kUnsupported for
// one that cannot be used here.
Result<const tsr_transport_api*> load_transport(const std::string& plugin_path, std::string_view name, const tsr_host_api& host);

}  // namespace tessera
