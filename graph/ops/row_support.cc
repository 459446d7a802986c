#include "graph/ops/row_support.h"

#include "graph/base/text.h"

namespace tessera::ops {

Status check_row_statistic(std::string_view op, Types inputs, int i, std::string_view name,
                           const TensorType& rows) {
  TSR_RETURN_IF_ERROR(check_dtype(op, inputs, i, name, statistics_dtype(rows.dtype)));
  return check_shape(op, inputs, i, name, without_last(rows.shape));
}

Status check_indices(std::string_view op, Types inputs, int i, std::string_view name, const Shape& wanted) {
  TSR_RETURN_IF_ERROR(check_dtype(op, inputs, i, name, DType::kI32));
  return check_shape(op, inputs, i, name, wanted);
}

Status check_not_differentiated(const VjpBuilder& builder, std::string_view op, int i,
                                std::string_view name) {
  if (!builder.output_grad(i)) return {};
  return Status(StatusCode::kUnsupported,
                format("{}: the loss depends on output {} ({}), which serves the backward pass and is not "
                       "differentiated; compute it from output 0",
                       op, i, name));
}

ShardingRule phased_rule(std::string_view text, LinearSets linear, char phased) {
  ShardingRule rule = make_rule(text, std::move(linear));
  rule.find(phased)->kind = FactorKind::kPhased;
  return rule;
}

}  // namespace tessera::ops
