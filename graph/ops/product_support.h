// Shared by the ops that multiply by a matrix: y [..., N] = x [..., K] w, w stored [K, N] ([N, K] when
// trans_w = 1), and the gradient of the weight, dw = x^T dy, stored as w is.
#pragma once

#include <string_view>

#include "graph/ops/op_support.h"

namespace tessera::ops {

// Checks that an attribute is 0 or 1.
Status check_flag(std::string_view op, Attrs attrs, std::string_view name);

// "allow_tf32". 1: a kernel may round f32 operands to TF32 (graph/base/tf32.h) before it multiplies them, and
// sums their products in f32; other types are multiplied as they are. Results, and the op's other steps, are
// not rounded so.
AttrSpec allow_tf32_spec();
// The attribute with its value in `attrs`, for a node's gradient and phases.
Attr allow_tf32_as(Attrs attrs);

// The shape of y from operands 0 (x) and 1 (w).
Result<Shape> product_shape(std::string_view op, Types in, Attrs attrs);

// The shape of dw from operands 0 (x) and 1 (dy).
Result<Shape> weight_grad_shape(std::string_view op, Types in, Attrs attrs);

}  // namespace tessera::ops
