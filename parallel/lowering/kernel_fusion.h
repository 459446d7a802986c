// Kernel fusion: kernels of a rank that follow one another become one where the devices have that and say
// that it takes less time. Runs when everything is sharded and every message is written down, so that it
// never stands in a plan's way: what a message separates stays apart. Ops say what they join by their columns (OpDef::fused,
// algebra, is_activation):
//
//   add(matmul(x, w, bias), addend)                     matmul_add
//   gelu | relu | silu (matmul(x, w, bias))             matmul with that activation, and the value before it
//   layer_norm(add(x, addend)) of more than a few rows   add_layer_norm; add_rms_norm
//   layer_norm_grad_input, layer_norm_grad_weight, and
//   add of another gradient, where there is one         layer_norm_grad; rms_norm_grad
//   sum_leading of what layer_norm_grad makes           layer_norm_grad with column_sums
//   cast to f32 of what sum_leading, layer_norm_grad,
//   rms_norm_grad or matmul_weight_grad sum             the same in f32 at once
#pragma once

#include "parallel/lowering/kernel_joiner.h"

namespace tessera {

// Of entry number `index`, before its slots are placed: what no kernel writes any more is given no bytes.
void fuse_kernels(EntryPoint& entry, int32_t index, RankBuilder& builder);

// Whether fusion makes kernels of the op; a product without an activation is not among them.
bool is_fused_form(const OpDef& op, size_t result_count);

// Whether `op` is what fusion makes of an instruction of another op. Its first result is then that of the
// node that the instruction names.
bool is_fused(const OpDef& op, const Node& node);

// Whether kernels of the node may become part of another by the catalog, which then costs no less than it did alone.
bool may_join_another(const Graph& graph, const Node& node, const KernelCatalog& catalog);

// Kernels that no instruction launches.
void drop_unused_kernels(RankProgram& program);

}  // namespace tessera
