// Shared by the ops over the rows of a tensor (norms, softmax, cross entropy): values of [..., C] with one
// statistic a row.
#pragma once

#include "graph/autodiff.h"
#include "graph/ops/op_support.h"

namespace tessera::ops {

// Checks that operand i is a statistic of the rows of `rows` [..., C]: shape [...], f64 for f64 rows, else
// f32.
Status check_row_statistic(std::string_view op, Types inputs, int i, std::string_view name,
                           const TensorType& rows);

// Checks that operand i has the shape `wanted` and dtype i32.
Status check_indices(std::string_view op, Types inputs, int i, std::string_view name, const Shape& wanted);

// For a vjp: an error when a gradient reached output i, which serves only the backward pass.
Status check_not_differentiated(const VjpBuilder& builder, std::string_view op, int i, std::string_view name);

// make_rule for an op that normalises over `phased` and has a phased form.
ShardingRule phased_rule(std::string_view text, LinearSets linear, char phased);

}  // namespace tessera::ops
