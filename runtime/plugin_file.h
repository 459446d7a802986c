// Plugin file: finds a backend's shared library and checks that it may be loaded.
// Its constructors run on loading, so a file that others can write is refused.
#pragma once

#include <string>
#include <string_view>

#include "graph/base/result.h"

namespace tessera {

// Absolute folder of this library, or of the
// program it is linked into; empty if unknown.
std::string folder_of_this_library();

// Path of libtessera_<name>.so in `folder`, or, if empty, next to this
// library; never in the working directory by default. kNotFound; kUnsupported
// if others than the owner and root can write the file or its folder.
Result<std::string> find_plugin_file(std::string_view folder, std::string_view name);

}  // namespace tessera
