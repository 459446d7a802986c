// A plan's explanation on a screen.
#pragma once

#include <ostream>

#include "command.h"

namespace cli {

// `explanation` as tsr_plan_explain has it.
void print_explanation(std::ostream& out, const Json& explanation);

std::string seconds_text(double seconds);  // "12.35 ms"

}  // namespace cli
