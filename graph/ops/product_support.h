// What the ops that multiply by a matrix share: a product y [..., N] = x [..., K] w, w stored [K, N] ([N, K]
// when trans_w = 1), and the gradient of its weight, dw = x^T dy, stored as w is.
#pragma once

#include <string_view>

#include "graph/ops/op_support.h"

namespace tessera::ops {

// An attribute that is 0 or 1.
Status check_flag(std::string_view op, Attrs attrs, std::string_view name);

// The shape of y, of operands 0 (x) and 1 (w).
Result<Shape> product_shape(std::string_view op, Types in, Attrs attrs);

// The shape of dw, of operands 0 (x) and 1 (dy).
Result<Shape> weight_grad_shape(std::string_view op, Types in, Attrs attrs);

}  // namespace tessera::ops
