// The prepare function of sums over the documents of a row.
#pragma once

#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

Result<PreparedKernel> prepare_segment_sum(const KernelSpec& spec);

}  // namespace tessera::cpu
