// adapter_rows(ids, a, adapter)[t, r] = a[adapter[t], ids[t], r]: the first factor of each token's low-rank adapter of a table, one of many.
// Looking up a row is the product with its one-hot vector, which adapter_shrink would compute ("SGMV shrink", Punica, Chen et al., 2023).
// 0 for tokens without an adapter (-1), and for ids that are not in the table. A token's result depends on that token alone.
// ids [...] i32, a [S, V, R], adapter [...] i32 -> low [..., R] in f32 (f64 for a in f64), for adapter_expand.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {

constexpr std::string_view kName = "adapter_rows";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 0, "ids", in[0].shape));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 1, "a"));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 1, "a", 3));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 2, "adapter", in[0].shape));
  if (in[0].shape.rank() == kMaxRank)
    return Status(StatusCode::kInvalidArgument,
                  format("{}: operand 0 (ids) is {}, wanted at most {} dims", kName, in[0], kMaxRank - 1));
  return std::vector<TensorType>{{statistics_dtype(in[1].dtype), with_last(in[0].shape, in[1].shape[2])}};
}

// Slots and rows are indexed by tokens, and the rank is small: all stay whole.
ShardingRule sharding(const OpView& view) {
  const std::string tokens = leading_letters(view.inputs[0].shape.rank(), "svr");
  return make_rule(format("{},svr,{}->{}r", tokens, tokens, tokens), {}, "svr");
}

// Reads the looked-up rows, not the tables.
OpCost cost(const OpView& view) {
  const int tables[] = {1};
  OpCost cost = traffic_cost(view, 0, tables);
  cost.bytes_read += static_cast<double>(view.outputs[0].shape.elements() * info(view.inputs[1].dtype).block_bytes);
  return cost;
}

}  // namespace

extern const OpDef kAdapterRows = {.name = kName, .infer = infer, .sharding = sharding, .cost = cost};

}  // namespace tessera
