// Table look-up and its gradient.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

// embedding(table, ids)[..., c] = table[ids[...], c], 0 where the id is not in the table
//   table [V, C], ids [...] i32 -> y [..., C].  A shard of the table gives 0 for the ids of the others, so
//   that y is partial over v; an id outside 0..V-1 gives 0 on every shard.
namespace embedding {

constexpr std::string_view kName = "embedding";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "table"));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "table", 2));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 1, "ids", in[1].shape));
  if (in[1].shape.rank() == kMaxRank)
    return Status(StatusCode::kInvalidArgument,
                  format("{}: operand 1 (ids) is {}, wanted at most {} dims", kName, in[1], kMaxRank - 1));
  return std::vector<TensorType>{{in[0].dtype, with_last(in[1].shape, in[0].shape[1])}};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  return set_grad(b, 0, [&] { return b.emit("embedding_grad", {b.input(1), *dy, b.input(0)}); });
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[1].shape.rank(), "vc");
  return make_rule(format("vc,{}->{}c", rows, rows), {{0}});
}

// Reads the rows that are looked up, not the whole table.
OpCost cost(const OpView& view) {
  const int table[] = {0};
  OpCost cost = traffic_cost(view, 0, table);
  cost.bytes_read += static_cast<double>(bytes(view.outputs[0]));
  return cost;
}

}  // namespace embedding

extern const OpDef kEmbedding = {.name = embedding::kName,
                                 .infer = embedding::infer,
                                 .vjp = embedding::vjp,
                                 .sharding = embedding::sharding,
                                 .cost = embedding::cost};

// dtable[v, c] = sum of dy[..., c] over the positions where ids[...] = v, in order of position
//   ids [...] i32, dy [..., C], shape of table [V, C] -> dtable [V, C].  Linear in dy; the same bits every
//   time.
namespace embedding_grad {

constexpr std::string_view kName = "embedding_grad";
const int kShapeOnly[] = {2};

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 1, "dy"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 1, "dy", 1));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 0, "ids", without_last(in[1].shape)));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 2, "table", in[1].dtype));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 2, "table", 2));
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 2, "table", 1, last_extent(in[1].shape)));
  return std::vector<TensorType>{in[2]};
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[0].shape.rank(), "vc");
  return make_rule(format("{},{}c,vc->vc", rows, rows), {{1}});
}

OpCost cost(const OpView& view) {
  return traffic_cost(view, static_cast<double>(view.inputs[1].shape.elements()), kShapeOnly);
}

}  // namespace embedding_grad

extern const OpDef kEmbeddingGrad = {.name = embedding_grad::kName,
                                     .infer = embedding_grad::infer,
                                     .sharding = embedding_grad::sharding,
                                     .cost = embedding_grad::cost,
                                     .shape_only = embedding_grad::kShapeOnly};

}  // namespace tessera
