// Whole text files that users name: texts to train on, plans, profiles, clusters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "graph/base/result.h"

namespace tessera {

// Its bytes; a pipe is read to its end. `what` it is begins messages. kNotFound, kInvalidArgument for a
// folder, a device that is no terminal and for more than `most` bytes, kIo. A pipe or socket that has not
// ended after half of the memory that this process may have is kInvalidArgument too.
Result<std::string> read_text_file(const std::string& path, std::string_view what, size_t most = SIZE_MAX);

// The same of what remains of standard input.
Result<std::string> read_standard_input(std::string_view what);

}  // namespace tessera
