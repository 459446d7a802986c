// Notes: lines for the log from code that has no host at hand, such as a query that names no device.
#pragma once

#include <string>
#include <vector>

namespace tessera::cuda {

void note(std::string line);
// Returns each line once, to the first caller.
std::vector<std::string> take_notes();

}  // namespace tessera::cuda
