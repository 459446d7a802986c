// The prepare functions of optimizers' updates, one line each, for kernel_table.cc.
#pragma once

#include "runtime/backends/cuda/cuda_kernel.h"

namespace tessera::cuda {

Result<PreparedKernel> prepare_adafactor_moment(const KernelSpec& spec);
Result<PreparedKernel> prepare_adafactor_squares(const KernelSpec& spec);
Result<PreparedKernel> prepare_adafactor_update(const KernelSpec& spec);
Result<PreparedKernel> prepare_adafactor_update_stochastic(const KernelSpec& spec);
Result<PreparedKernel> prepare_adamw8_update(const KernelSpec& spec);
Result<PreparedKernel> prepare_adamw8_update_stochastic(const KernelSpec& spec);
Result<PreparedKernel> prepare_muon_momentum(const KernelSpec& spec);
Result<PreparedKernel> prepare_orthogonalize(const KernelSpec& spec);
Result<PreparedKernel> prepare_orthogonalize_lt(const KernelSpec& spec);
Result<PreparedKernel> prepare_muon_update(const KernelSpec& spec);
Result<PreparedKernel> prepare_muon_update_stochastic(const KernelSpec& spec);
Result<PreparedKernel> prepare_square_sums(const KernelSpec& spec);
Result<PreparedKernel> prepare_lion_update(const KernelSpec& spec);
Result<PreparedKernel> prepare_lion_update_stochastic(const KernelSpec& spec);

}  // namespace tessera::cuda
