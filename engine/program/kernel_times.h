// Times of kernels out of a trace, beside what each would take if nothing but memory or products bound it.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/options.h"

namespace tessera {

// Keys and options: tsr_trace_kernels.
Result<std::string> kernel_times_json(std::string_view trace, const Options& options);

}  // namespace tessera
