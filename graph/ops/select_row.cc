// select_row(x, length)[b, c] = x[b, length[b] - 1, c], 0 where that row does not exist
//   x [B, T, C], length [B] i32 -> y [B, C].  Linear in x. No gradient.

#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace select_row {

constexpr std::string_view kName = "select_row";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "x", 3));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 1, "length", Shape{in[0].shape[0]}));
  return std::vector<TensorType>{{in[0].dtype, Shape{in[0].shape[0], in[0].shape[2]}}};
}

ShardingRule sharding(const OpView&) { return make_rule("btc,b->bc", {{0}}, "t"); }

// Reads one row of each sequence.
OpCost cost(const OpView& view) {
  const auto moved = static_cast<double>(bytes(view.outputs[0]));
  return {.flops = 0, .bytes_read = moved, .bytes_written = moved};
}

}  // namespace select_row

extern const OpDef kSelectRow = {.name = select_row::kName,
                                 .infer = select_row::infer,
                                 .sharding = select_row::sharding,
                                 .cost = select_row::cost};

}  // namespace tessera
