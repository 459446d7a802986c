// Times of kernels in a trace, with the lower bound of each by memory and products.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/options.h"

namespace tessera {

// Keys and options: tsr_trace_kernels.
Result<std::string> kernel_times_json(std::string_view trace, const Options& options);

}  // namespace tessera
