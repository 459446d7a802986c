#include "runtime/backends/cpu/kernels/kernels.h"

namespace tessera::cpu {

namespace {
// Best first, reference last; prepare() may decline with a reason. Sorted by op.
constexpr KernelEntry kKernels[] = {
    {"matmul", "packed", prepare_matmul_packed},
    {"matmul_weight_grad", "packed", prepare_matmul_weight_grad_packed},
};
}  // namespace

std::span<const KernelEntry> kernel_table() { return kKernels; }

}  // namespace tessera::cpu
