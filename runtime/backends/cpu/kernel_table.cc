#include "runtime/backends/cpu/kernels/kernels.h"

namespace tessera::cpu {

namespace {
// Best first, reference last; prepare() may decline with a reason. Sorted by op.
constexpr KernelEntry kKernels[] = {
    {"attention", "reference", prepare_attention},
    {"attention_cached", "reference", prepare_attention_cached},
    {"attention_grad", "reference", prepare_attention_grad},
    {"cache_write", "reference", prepare_cache_write},
    {"cross_entropy", "reference", prepare_cross_entropy},
    {"cross_entropy_grad", "reference", prepare_cross_entropy_grad},
    {"embedding", "reference", prepare_embedding},
    {"embedding_grad", "reference", prepare_embedding_grad},
    {"layer_norm", "reference", prepare_layer_norm},
    {"layer_norm_grad_input", "reference", prepare_layer_norm_grad_input},
    {"layer_norm_grad_weight", "reference", prepare_layer_norm_grad_weight},
    {"matmul", "packed", prepare_matmul_packed},
    {"matmul_weight_grad", "packed", prepare_matmul_weight_grad_packed},
    {"pick", "reference", prepare_pick},
    {"positions", "reference", prepare_positions},
    {"rms_norm", "reference", prepare_rms_norm},
    {"rms_norm_grad_input", "reference", prepare_rms_norm_grad_input},
    {"rms_norm_grad_weight", "reference", prepare_rms_norm_grad_weight},
    {"rope", "reference", prepare_rope},
    {"row_max", "reference", prepare_row_max},
    {"row_sum_exp", "reference", prepare_row_sum_exp},
    {"sample", "reference", prepare_sample},
    {"select_row", "reference", prepare_select_row},
    {"softmax", "reference", prepare_softmax},
    {"softmax_grad", "reference", prepare_softmax_grad},
};
}  // namespace

std::span<const KernelEntry> kernel_table() { return kKernels; }

}  // namespace tessera::cpu
