// row_copy(state, from, to): the state with row to[n] as it was in row from[n]. No row is both, and none is written twice;
// numbers outside the state copy nothing.
//   state [R, ...], from, to [N] i32 -> state, in place.  Linear in state. For serving: no gradient.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace row_copy {

constexpr std::string_view kName = "row_copy";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "state"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 0, "state", 2));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 1, "from", 1));
  for (const int i : {1, 2}) TSR_RETURN_IF_ERROR(check_indices(kName, in, i, i == 1 ? "from" : "to", in[1].shape));
  return std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView& view) {
  const std::string rest = leading_letters(view.inputs[0].shape.rank() - 1, "rn");
  return make_rule(format("r{},n,n->r{}", rest, rest), {{0}}, "rn");
}

// In place: only the copied rows are moved.
OpCost cost(const OpView& view) {
  const Shape& state = view.inputs[0].shape;
  const double rows = static_cast<double>(view.inputs[1].shape[0]);
  const double row = state[0] > 0 ? static_cast<double>(bytes(view.inputs[0])) / static_cast<double>(state[0]) : 0;
  return {.flops = 0, .bytes_read = rows * row, .bytes_written = rows * row};
}

}  // namespace row_copy

extern const OpDef kRowCopy = {.name = row_copy::kName,
                               .infer = row_copy::infer,
                               .sharding = row_copy::sharding,
                               .cost = row_copy::cost,
                               .in_place = kInPlaceFirst};

}  // namespace tessera
