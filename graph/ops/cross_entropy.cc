// Cross entropy over a vocabulary that may be sharded, in phases. The statistics m = row_max(x), s =
// row_sum_exp(x, m) and picked = pick(x, labels) are local sums (or maxima) that merge over the shards;
// cross_entropy finishes from them without the logits. Its gradient goes to the logits only, in one piece.
// The statistics are not differentiated, so a loss that depends on them in another way is an error of
// `differentiate`.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {
std::string rows_of(const OpView& view) { return leading_letters(view.inputs[0].shape.rank() - 1, "v"); }

double logits_count(const OpView& view) { return static_cast<double>(view.inputs[0].shape.elements()); }

Status check_logits(std::string_view op, Types in) {
  TSR_RETURN_IF_ERROR(check_float(op, in, 0, "x"));
  return check_rank_at_least(op, in, 0, "x", 1);
}
}  // namespace

// row_max(x)[...] = max_v x[..., v]; -inf for no values
//   x [..., V] -> m [...] (f64 in an f64 graph, else f32)
namespace row_max {

constexpr std::string_view kName = "row_max";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 1));
  TSR_RETURN_IF_ERROR(check_logits(kName, in));
  return std::vector<TensorType>{{statistics_dtype(in[0].dtype), without_last(in[0].shape)}};
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = rows_of(view);
  ShardingRule rule = make_rule(format("{}v->{}", rows, rows));
  rule.find('v')->reduce = ReduceKind::kMax;
  return rule;
}

OpCost cost(const OpView& view) { return traffic_cost(view, logits_count(view)); }

}  // namespace row_max

extern const OpDef kRowMax = {
    .name = row_max::kName, .infer = row_max::infer, .sharding = row_max::sharding, .cost = row_max::cost};

// row_sum_exp(x, m)[...] = sum_v exp(x[..., v] - m[...]); a value of -inf adds 0
//   x [..., V], m [...] -> s [...]
namespace row_sum_exp {

constexpr std::string_view kName = "row_sum_exp";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_logits(kName, in));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 1, "m", in[0]));
  return std::vector<TensorType>{in[1]};
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = rows_of(view);
  return make_rule(format("{}v,{}->{}", rows, rows, rows));
}

OpCost cost(const OpView& view) { return traffic_cost(view, 3 * logits_count(view)); }

}  // namespace row_sum_exp

extern const OpDef kRowSumExp = {.name = row_sum_exp::kName,
                                 .infer = row_sum_exp::infer,
                                 .sharding = row_sum_exp::sharding,
                                 .cost = row_sum_exp::cost};

// pick(x, labels)[...] = x[..., labels[...]], 0 where the label is negative or on another shard
//   x [..., V], labels [...] i32 -> picked [...] (f64 in an f64 graph, else f32).  Linear in x.
namespace pick {

constexpr std::string_view kName = "pick";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_logits(kName, in));
  const Shape rows = without_last(in[0].shape);
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 1, "labels", rows));
  return std::vector<TensorType>{{statistics_dtype(in[0].dtype), rows}};
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = rows_of(view);
  return make_rule(format("{}v,{}->{}", rows, rows, rows), {{0}});
}

// Reads one value a row.
OpCost cost(const OpView& view) {
  const int logits[] = {0};
  OpCost cost = traffic_cost(view, 0, logits);
  cost.bytes_read += static_cast<double>(bytes(view.outputs[0]));
  return cost;
}

}  // namespace pick

extern const OpDef kPick = {
    .name = pick::kName,
    .infer = pick::infer,
    .sharding = pick::sharding,
    .cost = pick::cost,
    .index = {.operand = 1, .into = 0, .last_dim = true, .is_label = true},
};

// cross_entropy(x, labels, m, s, picked)[...] = log s + m - picked, 0 where the label is negative (ignored)
//   shape of x [..., V], labels [...] i32, m, s, picked [...] -> loss [...].  x is an operand only for its
//   gradient.
namespace cross_entropy {

constexpr std::string_view kName = "cross_entropy";
constexpr std::string_view kStatistics[] = {"row_max", "row_sum_exp", "pick"};
const int kShapeOnly[] = {0};

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 5));
  TSR_RETURN_IF_ERROR(check_logits(kName, in));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 1, "labels", without_last(in[0].shape)));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 2, "m", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 3, "s", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 4, "picked", in[0]));
  return std::vector<TensorType>{in[2]};
}

Status vjp(VjpBuilder& b) {
  const auto dloss = b.output_grad(0);
  if (!dloss) return {};
  return set_grad(b, 0, [&] {
    return b.emit("cross_entropy_grad", {b.input(0), b.input(1), b.input(2), b.input(3), *dloss});
  });
}

// v is replicated, not reduced: the statistics are complete, and x, a shape, moves no bytes.
ShardingRule sharding(const OpView& view) {
  const std::string rows = rows_of(view);
  return make_rule(format("{}v,{},{},{},{}->{}", rows, rows, rows, rows, rows, rows), {}, "v");
}

OpCost cost(const OpView& view) { return elementwise_cost(view, 3, kShapeOnly); }

}  // namespace cross_entropy

extern const OpDef kCrossEntropy = {
    .name = cross_entropy::kName,
    .infer = cross_entropy::infer,
    .vjp = cross_entropy::vjp,
    .sharding = cross_entropy::sharding,
    .cost = cross_entropy::cost,
    .shape_only = cross_entropy::kShapeOnly,
    .index = {.operand = 1, .into = 0, .last_dim = true, .is_label = true},
    .loss = {.statistics = cross_entropy::kStatistics, .row_max = 2, .picked = 4},
};

// dx[..., v] = (exp(x[..., v] - m[...]) / s[...] - [v = labels[...]]) * dloss[...], 0 where the label is
// negative
//   x [..., V], labels [...] i32, m, s, dloss [...] -> dx [..., V].  Linear in dloss; in place on x.
namespace cross_entropy_grad {

constexpr std::string_view kName = "cross_entropy_grad";
const int kInPlace[] = {0};

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 5));
  TSR_RETURN_IF_ERROR(check_logits(kName, in));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 1, "labels", without_last(in[0].shape)));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 2, "m", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 3, "s", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 4, "dloss", in[0]));
  return std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = rows_of(view);
  return make_rule(format("{}v,{},{},{},{}->{}v", rows, rows, rows, rows, rows, rows), {{4}});
}

OpCost cost(const OpView& view) { return elementwise_cost(view, 4); }

}  // namespace cross_entropy_grad

extern const OpDef kCrossEntropyGrad = {.name = cross_entropy_grad::kName,
                                        .infer = cross_entropy_grad::infer,
                                        .sharding = cross_entropy_grad::sharding,
                                        .cost = cross_entropy_grad::cost,
                                        .in_place = cross_entropy_grad::kInPlace};

}  // namespace tessera
