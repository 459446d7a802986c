// Every prepare function of the CPU backend, one line each, for kernel_table.cc.
#pragma once

#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

// Reference kernels: plain loops, wide accumulation; the oracle of every other variant.
Result<Prepared> prepare_adamw_update(const KernelSpec& spec);
Result<Prepared> prepare_add(const KernelSpec& spec);
Result<Prepared> prepare_add_bias(const KernelSpec& spec);
Result<Prepared> prepare_attention(const KernelSpec& spec);
Result<Prepared> prepare_attention_cached(const KernelSpec& spec);
Result<Prepared> prepare_attention_grad(const KernelSpec& spec);
Result<Prepared> prepare_broadcast(const KernelSpec& spec);
Result<Prepared> prepare_cache_write(const KernelSpec& spec);
Result<Prepared> prepare_cast(const KernelSpec& spec);
Result<Prepared> prepare_clip_scale(const KernelSpec& spec);
Result<Prepared> prepare_concat(const KernelSpec& spec);
Result<Prepared> prepare_cross_entropy(const KernelSpec& spec);
Result<Prepared> prepare_cross_entropy_grad(const KernelSpec& spec);
Result<Prepared> prepare_div(const KernelSpec& spec);
Result<Prepared> prepare_dropout(const KernelSpec& spec);
Result<Prepared> prepare_embedding(const KernelSpec& spec);
Result<Prepared> prepare_embedding_grad(const KernelSpec& spec);
Result<Prepared> prepare_exp(const KernelSpec& spec);
Result<Prepared> prepare_gelu(const KernelSpec& spec);
Result<Prepared> prepare_gelu_grad(const KernelSpec& spec);
Result<Prepared> prepare_layer_norm(const KernelSpec& spec);
Result<Prepared> prepare_layer_norm_grad_input(const KernelSpec& spec);
Result<Prepared> prepare_layer_norm_grad_weight(const KernelSpec& spec);
Result<Prepared> prepare_log(const KernelSpec& spec);
Result<Prepared> prepare_matmul(const KernelSpec& spec);
Result<Prepared> prepare_matmul_weight_grad(const KernelSpec& spec);
Result<Prepared> prepare_merge_dims(const KernelSpec& spec);
Result<Prepared> prepare_mul(const KernelSpec& spec);
Result<Prepared> prepare_neg(const KernelSpec& spec);
Result<Prepared> prepare_pad(const KernelSpec& spec);
Result<Prepared> prepare_pick(const KernelSpec& spec);
Result<Prepared> prepare_positions(const KernelSpec& spec);
Result<Prepared> prepare_reduce_max(const KernelSpec& spec);
Result<Prepared> prepare_reduce_mean(const KernelSpec& spec);
Result<Prepared> prepare_reduce_sum(const KernelSpec& spec);
Result<Prepared> prepare_relu(const KernelSpec& spec);
Result<Prepared> prepare_relu_grad(const KernelSpec& spec);
Result<Prepared> prepare_rms_norm(const KernelSpec& spec);
Result<Prepared> prepare_rms_norm_grad_input(const KernelSpec& spec);
Result<Prepared> prepare_rms_norm_grad_weight(const KernelSpec& spec);
Result<Prepared> prepare_rope(const KernelSpec& spec);
Result<Prepared> prepare_row_max(const KernelSpec& spec);
Result<Prepared> prepare_row_sum_exp(const KernelSpec& spec);
Result<Prepared> prepare_sample(const KernelSpec& spec);
Result<Prepared> prepare_scale(const KernelSpec& spec);
Result<Prepared> prepare_scale_by(const KernelSpec& spec);
Result<Prepared> prepare_select_row(const KernelSpec& spec);
Result<Prepared> prepare_sgd_update(const KernelSpec& spec);
Result<Prepared> prepare_sigmoid(const KernelSpec& spec);
Result<Prepared> prepare_sigmoid_grad(const KernelSpec& spec);
Result<Prepared> prepare_silu(const KernelSpec& spec);
Result<Prepared> prepare_silu_grad(const KernelSpec& spec);
Result<Prepared> prepare_slice(const KernelSpec& spec);
Result<Prepared> prepare_softmax(const KernelSpec& spec);
Result<Prepared> prepare_softmax_grad(const KernelSpec& spec);
Result<Prepared> prepare_split_dim(const KernelSpec& spec);
Result<Prepared> prepare_sqrt(const KernelSpec& spec);
Result<Prepared> prepare_square(const KernelSpec& spec);
Result<Prepared> prepare_sub(const KernelSpec& spec);
Result<Prepared> prepare_sum_leading(const KernelSpec& spec);
Result<Prepared> prepare_sum_squares(const KernelSpec& spec);
Result<Prepared> prepare_swiglu(const KernelSpec& spec);
Result<Prepared> prepare_swiglu_grad(const KernelSpec& spec);
Result<Prepared> prepare_tanh(const KernelSpec& spec);
Result<Prepared> prepare_tanh_grad(const KernelSpec& spec);
Result<Prepared> prepare_transpose(const KernelSpec& spec);
Result<Prepared> prepare_zeros_like(const KernelSpec& spec);

// Fast kernels: Highway, run-time dispatch.
Result<Prepared> prepare_attention_cached_flash(const KernelSpec& spec);
Result<Prepared> prepare_attention_flash(const KernelSpec& spec);
Result<Prepared> prepare_attention_grad_flash(const KernelSpec& spec);
Result<Prepared> prepare_matmul_packed(const KernelSpec& spec);
Result<Prepared> prepare_matmul_weight_grad_packed(const KernelSpec& spec);

}  // namespace tessera::cpu
