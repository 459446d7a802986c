// Shared by adapter_shrink, adapter_expand and adapter_outer: products of tokens with the factors [S, R, C] of low-rank adapters
// in S slots.
#pragma once

#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera::ops {

// Operand 1: factors of type `low`, or stored in 16 bits.
inline Status check_adapter_factors(std::string_view op, Types in, std::string_view name, DType low) {
  TSR_RETURN_IF_ERROR(check_rank(op, in, 1, name, 3));
  if (in[1].dtype == low || is_half_type(in[1].dtype)) return {};
  return Status(StatusCode::kInvalidArgument,
                format("{}: operand 1 ({}) is {}, wanted {}, bf16 or f16", op, name, in[1], to_text(low)));
}

// Every token has at most one adapter: only those are read. `columns`: C.
inline OpCost adapter_product_cost(const OpView& view, int64_t columns) {
  const Shape& factors = view.inputs[1].shape;
  const auto tokens = static_cast<double>(view.inputs[2].shape.elements());
  OpCost cost =
      traffic_cost(view, 2 * tokens * static_cast<double>(factors[1]) * static_cast<double>(columns));
  const auto slots = static_cast<double>(factors[0]);
  if (slots > tokens) cost.bytes_read -= static_cast<double>(bytes(view.inputs[1])) * (1 - tokens / slots);
  return cost;
}

// The gradient of the factors, operand 1: the sum over each slot's tokens of low [..., R] times wide [..., C].
inline Status set_factors_grad(VjpBuilder& b, std::string_view op, std::string_view name, TensorId low, DType low_dtype,
                               TensorId wide) {
  return set_grad(b, 1, [&]() -> Result<TensorId> {
    if (b.input_type(1).dtype != low_dtype)
      return Status(StatusCode::kInvalidArgument,
                    format("{}: operand 1 ({}) is {}, its gradient wants {}: train factors of that type", op, name,
                           b.input_type(1), to_text(low_dtype)));
    TSR_ASSIGN_OR_RETURN(const TensorId zeros, b.emit("zeros_like", {b.input(1)}));
    return b.emit("adapter_outer", {low, wide, b.input(2), zeros});
  });
}

}  // namespace tessera::ops
