// Lines for the log from where no host is at hand, such as a question that names no device.
#pragma once

#include <string>
#include <vector>

namespace tessera::cuda {

void note(std::string line);
// Each line once, to whoever asks first.
std::vector<std::string> take_notes();

}  // namespace tessera::cuda
