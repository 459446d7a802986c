// The prepare function of sums over the documents of a row.
#pragma once

#include "runtime/backends/cuda/cuda_kernel.h"

namespace tessera::cuda {

Result<PreparedKernel> prepare_segment_sum(const KernelSpec& spec);

}  // namespace tessera::cuda
