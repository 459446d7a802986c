// What `tessera train` says while it trains, and at the end.
#pragma once

#include <string>

#include "command.h"

namespace cli {

// ", 12.00 MiB in a file" of a device of tsr_trainer_report whose tensors leave it; "" of others.
std::string offloaded_text(const Json& device);
// The lines of a result of `train --json`; `out` empty: nothing was written. `limit`: the line about the physical limit.
void print_result(const Json& result, const std::string& out, const std::string& limit);

}  // namespace cli
