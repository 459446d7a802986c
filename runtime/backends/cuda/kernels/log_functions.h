// Prepare functions of logarithms of sums and differences of exponentials, element by element (elementwise.cu).
#pragma once

#include "runtime/backends/cuda/cuda_kernel.h"

namespace tessera::cuda {

Result<PreparedKernel> prepare_log1mexp(const KernelSpec& spec);
Result<PreparedKernel> prepare_softplus(const KernelSpec& spec);

}  // namespace tessera::cuda
