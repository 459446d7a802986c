// Plain files, and what a name leads to where it is none: folders, pipes, sockets, devices and links to nothing are
// refused by name. A side file that is ignored would change a model silently.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

#include "graph/base/result.h"

namespace tessera {

// "a file", "a folder", "a pipe", "a socket", "a device".
std::string_view kind_of_file(mode_t mode);

// Whether there is a plain file, or a link to one; false where there is nothing. kInvalidArgument names what is there
// instead; kIo where the system does not tell.
Result<bool> has_plain_file(const std::string& path);

// Refuses a folder of a model, tokenizer or adapter in which a name that its readers look for is no plain file.
Status check_side_files(const std::string& folder);

}  // namespace tessera
