// Plugin file: where the shared library of a backend is, and whether it may be loaded. Its constructors run
// when it is loaded, so a file that somebody else can write is none of ours.
#pragma once

#include <string>
#include <string_view>

#include "graph/base/result.h"

namespace tessera {

// Folder of this library, or of the program that it is linked into: absolute, or empty where the system does
// not say.
std::string folder_of_this_library();

// Path of libtessera_<name>.so in `folder`, or where that is empty next to this library; the working
// directory is never searched by default. kNotFound without the file; kUnsupported where the file or its
// folder can be written by others than its owner and root.
Result<std::string> find_plugin_file(std::string_view folder, std::string_view name);

}  // namespace tessera
