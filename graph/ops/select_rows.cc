// select_rows(x, rows)[w, c] = x[b, t, c] of the token b * T + t = rows[w], 0 where there is none, of integers -1
//   x [B, T, C] floats or q8_0, or [B, T] i32, rows [W] i32 -> y [W, C], or [W].  Linear in x of floats. For serving: no gradient.

#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace select_rows {

constexpr std::string_view kName = "select_rows";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  const bool is_number = in[0].dtype == DType::kI32;
  if (!is_number && in[0].dtype != DType::kQ8_0) TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "x", is_number ? 2 : 3));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 1, "rows", 1));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 1, "rows", in[1].shape));
  Shape y{in[1].shape[0]};
  if (!is_number) y.push_back(in[0].shape[2]);
  return std::vector<TensorType>{{in[0].dtype, y}};
}

ShardingRule sharding(const OpView& view) {
  if (view.inputs[0].dtype == DType::kI32) return make_rule("bt,w->w", {}, "bt");
  const bool is_linear = info(view.inputs[0].dtype).is_float;
  return make_rule("btc,w->wc", is_linear ? LinearSets{{0}} : LinearSets{}, "bt");
}

// Reads the requested rows.
OpCost cost(const OpView& view) {
  const auto moved = static_cast<double>(bytes(view.outputs[0]));
  return {.flops = 0, .bytes_read = moved, .bytes_written = moved};
}

}  // namespace select_rows

extern const OpDef kSelectRows = {.name = select_rows::kName,
                                  .infer = select_rows::infer,
                                  .sharding = select_rows::sharding,
                                  .cost = select_rows::cost};

}  // namespace tessera
