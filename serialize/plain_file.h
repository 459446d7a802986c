// Plain files: folders, pipes, sockets, devices and dangling links in their place
// are refused by name, since an ignored side file would silently change a model.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

#include "graph/base/result.h"

namespace tessera {

// "a file", "a folder", "a pipe", "a socket", "a device".
std::string_view kind_of_file(mode_t mode);

// Whether there is a plain file, or a link to one. kInvalidArgument
// names anything else at the path; kIo if it cannot be examined.
Result<bool> has_plain_file(const std::string& path);

// Refuses a folder of a model, tokenizer or adapter in which a known file name is no plain file.
Status check_side_files(const std::string& folder);

}  // namespace tessera
