// Table look-up and its gradient.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

// embedding(table, ids)[..., c] = table[ids[...], c], 0 where the id is not in the table
//   table [V, C], ids [...] i32 -> y [..., C] of the table's type; of a block type f32.  A shard of the table
//   gives 0 for the ids of the others, so that y is partial over v; an id outside 0..V-1 gives 0 on every
//   shard.
namespace embedding {

constexpr std::string_view kName = "embedding";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  const bool is_block = is_block_type(in[0].dtype);
  if (!is_block) TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "table"));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "table", 2));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 1, "ids", in[1].shape));
  if (in[1].shape.rank() == kMaxRank)
    return Status(StatusCode::kInvalidArgument,
                  format("{}: operand 1 (ids) is {}, wanted at most {} dims", kName, in[1], kMaxRank - 1));
  const DType dtype = is_block ? DType::kF32 : in[0].dtype;
  return std::vector<TensorType>{{dtype, with_last(in[1].shape, in[0].shape[1])}};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  if (b.needs_grad(0) && is_block_type(b.input_type(0).dtype))
    return Status(
        StatusCode::kFailedPrecondition,
        format("{}: a table stored as {} does not train: freeze it", kName, to_text(b.input_type(0).dtype)));
  return set_grad(b, 0, [&] { return b.emit("embedding_grad", {b.input(1), *dy, b.input(0)}); });
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[1].shape.rank(), "vc");
  const LinearSets linear =
      is_block_type(view.inputs[0].dtype) ? LinearSets{} : LinearSets{{0}};  // blocks do not add
  return make_rule(format("vc,{}->{}c", rows, rows), linear);
}

// Reads the looked-up rows, not the whole table.
OpCost cost(const OpView& view) {
  const int table[] = {0};
  OpCost cost = traffic_cost(view, 0, table);
  const DTypeInfo& stored = info(view.inputs[0].dtype);
  cost.bytes_read +=
      static_cast<double>(view.outputs[0].shape.elements()) * stored.block_bytes / stored.block_elements;
  return cost;
}

}  // namespace embedding

extern const OpDef kEmbedding = {
    .name = embedding::kName,
    .infer = embedding::infer,
    .vjp = embedding::vjp,
    .sharding = embedding::sharding,
    .cost = embedding::cost,
    .weight = {.operand = 0, .use = WeightUse::kRows, .stored_read = read_along_blocks},
    .index = {.operand = 1, .into = 0},
};

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
