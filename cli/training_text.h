// What `tessera train` says while it trains, and at the end.
#pragma once

#include <cstdint>
#include <string>

#include "command.h"

namespace cli {

// "step 7/100  loss 2.3456  ...  12 min left"
std::string progress_line(const tsr_step& step, int64_t steps, int64_t tokens, double left_s);
// ", 12.00 MiB in a file" of a device of tsr_trainer_report whose tensors leave it; "" of others.
std::string offloaded_text(const Json& device);
// The lines of a result of `train --json`; `out` empty: nothing was written.
void print_result(const Json& result, const std::string& out);

}  // namespace cli
