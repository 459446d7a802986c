// Prepare functions of logarithms of sums and differences of exponentials, element by element (unary.cc).
#pragma once

#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

Result<PreparedKernel> prepare_log1mexp(const KernelSpec& spec);
Result<PreparedKernel> prepare_softplus(const KernelSpec& spec);

}  // namespace tessera::cpu
