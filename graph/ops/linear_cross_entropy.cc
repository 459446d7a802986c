// linear_cross_entropy: the output head x w^T and the cross entropy of its logits as one op, so that no [...,
// V] tensor of logits exists: kernels make a few rows of them at a time in their workspace. The gradient is
// dlogits[..., v] = softmax(x w^T)[..., v] - [v = labels[...]]. It takes three matmuls, as many as separate
// head and loss, since it makes loss and gradient from the same logits (graph/transform/fusion.h replaces
// the forward op by it). A sharded vocabulary needs maximum and sum of every row from all shards first: its
// phased form makes the logits three times.
#include "graph/base/text.h"
#include "graph/ops/linear_head.h"

namespace tessera {

using namespace ops;

// linear_cross_entropy(x, w, labels, scale) = scale * sum over rows of log(sum_v exp(l[..., v])) - l[...,
// labels[...]], l = x w^T; 0 for a row whose label is negative (ignored)
//   x [..., C], w [V, C], labels [...] i32, scale [] -> loss [] (f64 in an f64 graph, else f32)
namespace linear_cross_entropy {

constexpr std::string_view kName = "linear_cross_entropy";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4));
  TSR_RETURN_IF_ERROR(check_flag(kName, attrs, "allow_tf32"));
  TSR_RETURN_IF_ERROR(linear_head::check_operands(kName, in));
  TSR_RETURN_IF_ERROR(linear_head::check_labels(kName, in, 2));
  TSR_RETURN_IF_ERROR(linear_head::check_scalar(kName, in, 3, "scale"));
  return std::vector<TensorType>{linear_head::scalar_of(in[0])};
}

Status vjp(VjpBuilder& b) {
  const auto dloss = b.output_grad(0);
  if (!dloss) return {};
  if (b.needs_grad(3))
    return Status(StatusCode::kUnsupported,
                  format("{}: the loss is not differentiated by its scale; scale its result instead", kName));
  const TensorId operands[] = {b.input(0), b.input(1), b.input(2), b.input(3), *dloss};
  TSR_ASSIGN_OR_RETURN(const auto results, b.emit_all("linear_cross_entropy_grad", operands,
                                                      {{"weight_grad", int64_t{b.needs_grad(1) ? 1 : 0}},
                                                       allow_tf32_as(b.attrs())}));
  TSR_RETURN_IF_ERROR(b.set_input_grad(0, results[0]));
  return b.needs_grad(1) ? b.set_input_grad(1, results[2]) : Status();
}

ShardingRule sharding(const OpView& view) {
  const std::string r = linear_head::rows_of(view);
  ShardingRule rule = linear_head::rule(format("{}c,vc,{},->", r, r));
  rule.find('v')->kind = FactorKind::kPhased;
  return rule;
}

Status phases(PhaseBuilder& b) {
  TSR_ASSIGN_OR_RETURN(const linear_head::RowPhases rows, linear_head::emit_row_phases(b));
  TSR_ASSIGN_OR_RETURN(const TensorId loss,
                       b.emit("linear_cross_entropy_finish", {b.input(0), b.input(1), b.input(2), rows.max,
                                                              rows.sum, rows.picked, b.input(3)}));
  b.set_outputs({loss});
  return {};
}

OpCost cost(const OpView& view) { return linear_head::cost(view, 1, linear_head::kStatistics); }

}  // namespace linear_cross_entropy

extern const OpDef kLinearCrossEntropy = {
    .name = linear_cross_entropy::kName,
    .attrs = linear_head::kAttrs,
    .infer = linear_cross_entropy::infer,
    .vjp = linear_cross_entropy::vjp,
    .sharding = linear_cross_entropy::sharding,
    .cost = linear_cross_entropy::cost,
    .phases = linear_cross_entropy::phases,
    .weight = {.operand = 1},
    .index = {.operand = 2, .into = 1, .is_label = true},
    .loss = {.head = LossHead::kSum},
};

// linear_cross_entropy_grad(x, w, labels, scale, dloss): loss as linear_cross_entropy, and with g = scale *
// dloss
//   dx[...] = g * sum_v dlogits[..., v] w[v],   dw[v] = g * sum over rows of dlogits[..., v] x[...]
//   x [..., C], w [V, C], labels [...] i32, scale, dloss [] -> dx [..., C], loss [], dw [V, C] (summed in
//   f32)
namespace linear_cross_entropy_grad {

constexpr std::string_view kName = "linear_cross_entropy_grad";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 5));
  TSR_RETURN_IF_ERROR(check_flag(kName, attrs, "allow_tf32"));
  TSR_RETURN_IF_ERROR(linear_head::check_operands(kName, in));
  TSR_RETURN_IF_ERROR(linear_head::check_labels(kName, in, 2));
  TSR_RETURN_IF_ERROR(linear_head::check_scalar(kName, in, 3, "scale"));
  TSR_RETURN_IF_ERROR(linear_head::check_scalar(kName, in, 4, "dloss"));
  std::vector<TensorType> results = {in[0], linear_head::scalar_of(in[0])};
  if (linear_head::has_weight_grad(attrs)) results.push_back(in[1]);
  return results;
}

ShardingRule sharding(const OpView& view) {
  const std::string r = linear_head::rows_of(view);
  ShardingRule rule = linear_head::rule(
      format("{}c,vc,{},,->{}c,{}", r, r, r, linear_head::has_weight_grad(view.attrs) ? ",vc" : ""));
  reduce_too(rule, r);
  rule.find('v')->kind = FactorKind::kPhased;
  return rule;
}

Status phases(PhaseBuilder& b) {
  const TensorId x = b.input(0), w = b.input(1), labels = b.input(2), scale = b.input(3);
  TSR_ASSIGN_OR_RETURN(const linear_head::RowPhases rows, linear_head::emit_row_phases(b));
  TSR_ASSIGN_OR_RETURN(const TensorId loss, b.emit("linear_cross_entropy_finish",
                                                   {x, w, labels, rows.max, rows.sum, rows.picked, scale}));
  TSR_ASSIGN_OR_RETURN(const auto grads, b.emit_all("linear_cross_entropy_grad_finish",
                                                    {x, w, labels, rows.max, rows.sum, scale, b.input(4)},
                                                    {b.attrs().begin(), b.attrs().end()}));
  std::vector<TensorId> results = {grads[0], loss};
  if (grads.size() > 1) results.push_back(grads[1]);
  b.set_outputs(std::move(results));
  return {};
}

OpCost cost(const OpView& view) {
  return linear_head::cost(view, linear_head::has_weight_grad(view.attrs) ? 3 : 2,
                           linear_head::kStatistics + linear_head::kGradient);
}

}  // namespace linear_cross_entropy_grad

extern const OpDef kLinearCrossEntropyGrad = {
    .name = linear_cross_entropy_grad::kName,
    .attrs = linear_head::kGradAttrs,
    .infer = linear_cross_entropy_grad::infer,
    .sharding = linear_cross_entropy_grad::sharding,
    .cost = linear_cross_entropy_grad::cost,
    .phases = linear_cross_entropy_grad::phases,
    .weight = {.operand = 1},
    .index = {.operand = 2, .into = 1, .is_label = true},
    .loss = {.head = LossHead::kSum, .is_gradient = true},
    .forward_result = 1,
};

// linear_row_max(x, w)[...] = max_v l[..., v]
//   x [..., C], w [V, C] -> m [...] (f64 in an f64 graph, else f32)
namespace linear_row_max {

constexpr std::string_view kName = "linear_row_max";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_flag(kName, attrs, "allow_tf32"));
  TSR_RETURN_IF_ERROR(linear_head::check_operands(kName, in));
  return std::vector<TensorType>{linear_head::statistic_of(in[0])};
}

ShardingRule sharding(const OpView& view) {
  const std::string r = linear_head::rows_of(view);
  ShardingRule rule = linear_head::rule(format("{}c,vc->{}", r, r));
  rule.find('v')->reduce = ReduceKind::kMax;
  return rule;
}

OpCost cost(const OpView& view) { return linear_head::cost(view, 1, 1); }

}  // namespace linear_row_max

extern const OpDef kLinearRowMax = {.name = linear_row_max::kName,
                                    .attrs = linear_head::kAttrs,
                                    .infer = linear_row_max::infer,
                                    .sharding = linear_row_max::sharding,
                                    .cost = linear_row_max::cost};

// linear_row_sums(x, w, labels, m): s[...] = sum_v exp(l[..., v] - m[...]),  picked[...] = l[...,
// labels[...]], 0 where the label is negative or on another shard
//   x [..., C], w [V, C], labels [...] i32, m [...] -> s, picked [...]
namespace linear_row_sums {

constexpr std::string_view kName = "linear_row_sums";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4));
  TSR_RETURN_IF_ERROR(check_flag(kName, attrs, "allow_tf32"));
  TSR_RETURN_IF_ERROR(linear_head::check_operands(kName, in));
  TSR_RETURN_IF_ERROR(linear_head::check_labels(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 3, "m", in[0]));
  return std::vector<TensorType>{in[3], in[3]};
}

ShardingRule sharding(const OpView& view) {
  const std::string r = linear_head::rows_of(view);
  return linear_head::rule(format("{}c,vc,{},{}->{},{}", r, r, r, r, r));
}

OpCost cost(const OpView& view) { return linear_head::cost(view, 1, linear_head::kStatistics - 1); }

}  // namespace linear_row_sums

extern const OpDef kLinearRowSums = {.name = linear_row_sums::kName,
                                     .attrs = linear_head::kAttrs,
                                     .infer = linear_row_sums::infer,
                                     .sharding = linear_row_sums::sharding,
                                     .cost = linear_row_sums::cost};

// linear_cross_entropy_finish(shapes of x, w, labels, m, s, picked, scale) = scale * sum over rows of log s +
// m - picked
//   shapes of x [..., C], w [V, C], labels [...] i32, m, s, picked [...], scale [] -> loss [].  Operands are
//   complete on every shard of v: the one that begins at 0 gets the loss, the others 0.
namespace linear_cross_entropy_finish {

constexpr std::string_view kName = "linear_cross_entropy_finish";
const int kShapeOnly[] = {0, 1};

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 7));
  TSR_RETURN_IF_ERROR(linear_head::check_operands(kName, in));
  TSR_RETURN_IF_ERROR(linear_head::check_labels(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 3, "m", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 4, "s", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 5, "picked", in[0]));
  TSR_RETURN_IF_ERROR(linear_head::check_scalar(kName, in, 6, "scale"));
  return std::vector<TensorType>{linear_head::scalar_of(in[0])};
}

ShardingRule sharding(const OpView& view) {
  const std::string r = linear_head::rows_of(view);
  return linear_head::rule(format("{}c,vc,{},{},{},{},->", r, r, r, r, r));
}

OpCost cost(const OpView& view) {
  return traffic_cost(view, 4 * static_cast<double>(view.inputs[2].shape.elements()), kShapeOnly);
}

}  // namespace linear_cross_entropy_finish

extern const OpDef kLinearCrossEntropyFinish = {
    .name = linear_cross_entropy_finish::kName,
    .infer = linear_cross_entropy_finish::infer,
    .sharding = linear_cross_entropy_finish::sharding,
    .cost = linear_cross_entropy_finish::cost,
    .shape_only = linear_cross_entropy_finish::kShapeOnly,
    .loss = {.row_max = 3, .picked = 5},
};

// linear_cross_entropy_grad_finish(x, w, labels, m, s, scale, dloss): dx, dw of linear_cross_entropy_grad
// from complete statistics, softmax(l) = exp(l - m) / s
//   x [..., C], w [V, C], labels [...] i32, m, s [...], scale, dloss [] -> dx [..., C], dw [V, C].  dx is
//   partial over v.
namespace linear_cross_entropy_grad_finish {

constexpr std::string_view kName = "linear_cross_entropy_grad_finish";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 7));
  TSR_RETURN_IF_ERROR(check_flag(kName, attrs, "allow_tf32"));
  TSR_RETURN_IF_ERROR(linear_head::check_operands(kName, in));
  TSR_RETURN_IF_ERROR(linear_head::check_labels(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 3, "m", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 4, "s", in[0]));
  TSR_RETURN_IF_ERROR(linear_head::check_scalar(kName, in, 5, "scale"));
  TSR_RETURN_IF_ERROR(linear_head::check_scalar(kName, in, 6, "dloss"));
  return linear_head::has_weight_grad(attrs) ? std::vector<TensorType>{in[0], in[1]}
                                             : std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView& view) {
  const std::string r = linear_head::rows_of(view);
  ShardingRule rule = linear_head::rule(format("{}c,vc,{},{},{},,->{}c{}", r, r, r, r, r,
                                               linear_head::has_weight_grad(view.attrs) ? ",vc" : ""));
  reduce_too(rule, linear_head::has_weight_grad(view.attrs) ? r + "v" : "v");
  return rule;
}

OpCost cost(const OpView& view) {
  return linear_head::cost(view, linear_head::has_weight_grad(view.attrs) ? 3 : 2, linear_head::kGradient);
}

}  // namespace linear_cross_entropy_grad_finish

extern const OpDef kLinearCrossEntropyGradFinish = {.name = linear_cross_entropy_grad_finish::kName,
                                                    .attrs = linear_head::kGradAttrs,
                                                    .infer = linear_cross_entropy_grad_finish::infer,
                                                    .sharding = linear_cross_entropy_grad_finish::sharding,
                                                    .cost = linear_cross_entropy_grad_finish::cost};

}  // namespace tessera
