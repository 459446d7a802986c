// select_rows(x, rows)[w, c] = x[b, t, c] of the token b * T + t = rows[w], 0 where there is none
//   x [B, T, C] floats or q8_0, rows [W] i32 -> y [W, C].  Linear in x of floats. For serving: no gradient.

#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace select_rows {

constexpr std::string_view kName = "select_rows";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  if (in[0].dtype != DType::kQ8_0) TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "x", 3));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 1, "rows", 1));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 1, "rows", in[1].shape));
  return std::vector<TensorType>{{in[0].dtype, Shape{in[1].shape[0], in[0].shape[2]}}};
}

ShardingRule sharding(const OpView& view) {
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
