// The text form of a plan's explanation.
#pragma once

#include <ostream>

#include "command.h"

namespace cli {

// `explanation`: of tsr_plan_explain. `trains`:
// a training step, which may have recomputation.
void print_explanation(std::ostream& out, const Json& explanation, bool trains);

std::string seconds_text(double seconds);                     // "12.35 ms"
std::string rate_text(double per_second);                     // "53041", "127.4"
std::string percent_text(double share);                       // "9.3 %", "18 %", "under 0.1 %"
std::string counted(int64_t count, const std::string& noun);  // "1 device", "8 devices"

}  // namespace cli
