// positions(start, tokens)[b, t] = start[b] + t, with t counted over the whole sequence
//   start [B] i32, shape of tokens [B, T] -> [B, T] i32.

#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace positions {

constexpr std::string_view kName = "positions";
const int kShapeOnly[] = {1};

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 1, "tokens", 2));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 0, "start", Shape{in[1].shape[0]}));
  return std::vector<TensorType>{{DType::kI32, in[1].shape}};
}

ShardingRule sharding(const OpView&) { return make_rule("b,bt->bt"); }

OpCost cost(const OpView& view) { return elementwise_cost(view, 1, kShapeOnly); }

}  // namespace positions

extern const OpDef kPositions = {.name = positions::kName,
                                 .infer = positions::infer,
                                 .sharding = positions::sharding,
                                 .cost = positions::cost,
                                 .shape_only = positions::kShapeOnly};

}  // namespace tessera
