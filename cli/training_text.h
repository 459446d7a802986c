// Texts of `tessera train`, during the training and at its end.
#pragma once

#include <string>

#include "command.h"

namespace cli {

// The text ", 12.00 MiB in a file" of a device of tsr_trainer_report with tensors in a file; "" of others.
std::string offloaded_text(const Json& device);
// The lines of a result of `train --json`; `out` empty: nothing was written. `limit`: the line about the physical limit.
void print_result(const Json& result, const std::string& out, const std::string& limit);

}  // namespace cli
