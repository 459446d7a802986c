// Every prepare function of the CPU backend, one line each, for kernel_table.cc.
#pragma once

#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

// Reference kernels: plain loops, wide accumulation; the oracle of every other variant.
Result<Prepared> prepare_attention(const KernelSpec& spec);
Result<Prepared> prepare_attention_cached(const KernelSpec& spec);
Result<Prepared> prepare_attention_grad(const KernelSpec& spec);
Result<Prepared> prepare_cache_write(const KernelSpec& spec);
Result<Prepared> prepare_cross_entropy(const KernelSpec& spec);
Result<Prepared> prepare_cross_entropy_grad(const KernelSpec& spec);
Result<Prepared> prepare_embedding(const KernelSpec& spec);
Result<Prepared> prepare_embedding_grad(const KernelSpec& spec);
Result<Prepared> prepare_layer_norm(const KernelSpec& spec);
Result<Prepared> prepare_layer_norm_grad_input(const KernelSpec& spec);
Result<Prepared> prepare_layer_norm_grad_weight(const KernelSpec& spec);
Result<Prepared> prepare_pick(const KernelSpec& spec);
Result<Prepared> prepare_positions(const KernelSpec& spec);
Result<Prepared> prepare_rms_norm(const KernelSpec& spec);
Result<Prepared> prepare_rms_norm_grad_input(const KernelSpec& spec);
Result<Prepared> prepare_rms_norm_grad_weight(const KernelSpec& spec);
Result<Prepared> prepare_rope(const KernelSpec& spec);
Result<Prepared> prepare_row_max(const KernelSpec& spec);
Result<Prepared> prepare_row_sum_exp(const KernelSpec& spec);
Result<Prepared> prepare_sample(const KernelSpec& spec);
Result<Prepared> prepare_select_row(const KernelSpec& spec);
Result<Prepared> prepare_softmax(const KernelSpec& spec);
Result<Prepared> prepare_softmax_grad(const KernelSpec& spec);

// Fast kernels: Highway, run-time dispatch.
Result<Prepared> prepare_matmul_packed(const KernelSpec& spec);
Result<Prepared> prepare_matmul_weight_grad_packed(const KernelSpec& spec);

}  // namespace tessera::cpu
