// Prepare functions of the ops of recurrent layers: convolution, state scan, and what feeds them.
#pragma once

#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

Result<PreparedKernel> prepare_causal_conv(const KernelSpec& spec);
Result<PreparedKernel> prepare_causal_conv_grad(const KernelSpec& spec);
Result<PreparedKernel> prepare_causal_conv_grad_simd(const KernelSpec& spec);
Result<PreparedKernel> prepare_causal_conv_rows(const KernelSpec& spec);
Result<PreparedKernel> prepare_causal_conv_rows_simd(const KernelSpec& spec);
Result<PreparedKernel> prepare_causal_conv_simd(const KernelSpec& spec);
Result<PreparedKernel> prepare_l2_norm(const KernelSpec& spec);
Result<PreparedKernel> prepare_l2_norm_grad(const KernelSpec& spec);
Result<PreparedKernel> prepare_l2_norm_grad_simd(const KernelSpec& spec);
Result<PreparedKernel> prepare_l2_norm_simd(const KernelSpec& spec);
Result<PreparedKernel> prepare_scale_channels(const KernelSpec& spec);
Result<PreparedKernel> prepare_scale_channels_grad_weight(const KernelSpec& spec);
Result<PreparedKernel> prepare_scale_channels_simd(const KernelSpec& spec);
Result<PreparedKernel> prepare_selective_scan(const KernelSpec& spec);
Result<PreparedKernel> prepare_selective_scan_grad(const KernelSpec& spec);
Result<PreparedKernel> prepare_selective_scan_grad_simd(const KernelSpec& spec);
Result<PreparedKernel> prepare_selective_scan_rows(const KernelSpec& spec);
Result<PreparedKernel> prepare_selective_scan_rows_simd(const KernelSpec& spec);
Result<PreparedKernel> prepare_selective_scan_simd(const KernelSpec& spec);
Result<PreparedKernel> prepare_state_scan(const KernelSpec& spec);
Result<PreparedKernel> prepare_state_scan_grad(const KernelSpec& spec);
Result<PreparedKernel> prepare_state_scan_grad_simd(const KernelSpec& spec);
Result<PreparedKernel> prepare_state_scan_rows(const KernelSpec& spec);
Result<PreparedKernel> prepare_state_scan_rows_simd(const KernelSpec& spec);
Result<PreparedKernel> prepare_state_scan_simd(const KernelSpec& spec);
Result<PreparedKernel> prepare_step_decay(const KernelSpec& spec);
Result<PreparedKernel> prepare_step_decay_grad(const KernelSpec& spec);

}  // namespace tessera::cpu
