// Prepare functions of the ops of recurrent layers: convolution, state scan, and what feeds them.
#pragma once

#include "runtime/backends/cuda/cuda_kernel.h"

namespace tessera::cuda {

Result<PreparedKernel> prepare_causal_conv(const KernelSpec& spec);
Result<PreparedKernel> prepare_causal_conv_grad(const KernelSpec& spec);
Result<PreparedKernel> prepare_causal_conv_rows(const KernelSpec& spec);
Result<PreparedKernel> prepare_l2_norm(const KernelSpec& spec);
Result<PreparedKernel> prepare_l2_norm_grad(const KernelSpec& spec);
Result<PreparedKernel> prepare_scale_channels(const KernelSpec& spec);
Result<PreparedKernel> prepare_scale_channels_grad_weight(const KernelSpec& spec);
Result<PreparedKernel> prepare_selective_scan(const KernelSpec& spec);
Result<PreparedKernel> prepare_selective_scan_grad(const KernelSpec& spec);
Result<PreparedKernel> prepare_selective_scan_rows(const KernelSpec& spec);
Result<PreparedKernel> prepare_state_scan(const KernelSpec& spec);
Result<PreparedKernel> prepare_state_scan_grad(const KernelSpec& spec);
Result<PreparedKernel> prepare_state_scan_rows(const KernelSpec& spec);
Result<PreparedKernel> prepare_step_decay(const KernelSpec& spec);
Result<PreparedKernel> prepare_step_decay_grad(const KernelSpec& spec);

}  // namespace tessera::cuda
