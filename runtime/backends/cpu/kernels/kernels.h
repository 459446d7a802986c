// Every prepare function of the CPU backend, one line each, for kernel_table.cc.
#pragma once

#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

// Reference kernels: plain loops, wide accumulation; the oracle of every other variant.

// Fast kernels: Highway, run-time dispatch.
Result<Prepared> prepare_matmul_packed(const KernelSpec& spec);
Result<Prepared> prepare_matmul_weight_grad_packed(const KernelSpec& spec);

}  // namespace tessera::cpu
