// `tessera plan --mode serve`: how many sequences an engine holds, and in how many bytes.
#pragma once

#include "command.h"

namespace cli {

// tsr_plan_info's "serving" of such a plan, with {"mode", "plan": the strategy of each replica}.
Json serving_plan(const Json& info);
void print_serving_plan(const Json& plan);

}  // namespace cli
