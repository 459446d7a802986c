#include "graph/ops/linear_head.h"

namespace tessera::linear_head {

bool has_weight_grad(Attrs attrs) { return attr_i64(attrs, "weight_grad") != 0; }

std::string rows_of(const OpView& view) { return leading_letters(view.inputs[0].shape.rank() - 1, "cv"); }

Status check_operands(std::string_view op, Types in) {
  TSR_RETURN_IF_ERROR(check_float(op, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(op, in, 0, "x", 1));
  TSR_RETURN_IF_ERROR(check_dtype(op, in, 1, "w", in[0].dtype));
  TSR_RETURN_IF_ERROR(check_rank(op, in, 1, "w", 2));
  return check_extent(op, in, 1, "w", 1, last_extent(in[0].shape));
}

Status check_labels(std::string_view op, Types in, int i) {
  return check_indices(op, in, i, "labels", without_last(in[0].shape));
}

Status check_scalar(std::string_view op, Types in, int i, std::string_view name) {
  TSR_RETURN_IF_ERROR(check_dtype(op, in, i, name, statistics_dtype(in[0].dtype)));
  return check_shape(op, in, i, name, {});
}

TensorType scalar_of(const TensorType& x) { return {statistics_dtype(x.dtype), {}}; }
TensorType statistic_of(const TensorType& x) { return {statistics_dtype(x.dtype), without_last(x.shape)}; }

ShardingRule rule(const std::string& text) { return make_rule(text, {}, "c"); }

OpCost cost(const OpView& view, double products, double others) {
  const double rows = static_cast<double>(without_last(view.inputs[0].shape).elements());
  const double C = static_cast<double>(view.inputs[1].shape[1]),
               V = static_cast<double>(view.inputs[1].shape[0]);
  return traffic_cost(view, rows * V * (2 * C * products + others));
}

Result<RowPhases> emit_row_phases(PhaseBuilder& b) {
  const TensorId x = b.input(0), w = b.input(1), labels = b.input(2);
  TSR_ASSIGN_OR_RETURN(const TensorId max, b.emit("linear_row_max", {x, w}, {allow_tf32_as(b.attrs())}));
  TSR_ASSIGN_OR_RETURN(const auto sums,
                       b.emit_all("linear_row_sums", {x, w, labels, max}, {allow_tf32_as(b.attrs())}));
  return RowPhases{max, sums[0], sums[1]};
}

}  // namespace tessera::linear_head
