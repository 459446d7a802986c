// linear_token_losses: the output head x w^T and the cross entropy of each row as one op, for losses that are no plain sum of
// them (preferences, policies). No logits are kept, as in linear_cross_entropy.cc.
#include "graph/base/text.h"
#include "graph/ops/linear_head.h"

namespace tessera {

using namespace ops;

// linear_token_losses(x, w, labels): the losses of rows, apart, for losses that are no plain sum of them: loss[...] =
// log(sum_v exp(l[..., v])) - l[..., labels[...]], l = x w^T; 0 for a row whose label is negative (ignored). Its gradient
// makes the logits again, from the statistics m[...] = max_v l[..., v] and s[...] = sum_v exp(l[..., v] - m[...]): four
// products in all, however the vocabulary is split.
//   x [..., C], w [V, C], labels [...] i32 -> loss, m, s [...] (f64 in an f64 graph, else f32).  m and s are not
//   differentiated.
namespace linear_token_losses {

constexpr std::string_view kName = "linear_token_losses";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_flag(kName, attrs, "allow_tf32"));
  TSR_RETURN_IF_ERROR(linear_head::check_operands(kName, in));
  TSR_RETURN_IF_ERROR(linear_head::check_labels(kName, in, 2));
  return std::vector<TensorType>(3, linear_head::statistic_of(in[0]));
}

Status vjp(VjpBuilder& b) {
  TSR_RETURN_IF_ERROR(check_not_differentiated(b, kName, 1, "m"));
  TSR_RETURN_IF_ERROR(check_not_differentiated(b, kName, 2, "s"));
  const auto dloss = b.output_grad(0);
  if (!dloss) return {};
  const TensorId operands[] = {b.input(0), b.input(1), b.input(2), b.output(1), b.output(2), *dloss};
  TSR_ASSIGN_OR_RETURN(const auto results, b.emit_all("linear_token_losses_grad", operands,
                                                      {{"weight_grad", int64_t{b.needs_grad(1) ? 1 : 0}},
                                                       allow_tf32_as(b.attrs())}));
  TSR_RETURN_IF_ERROR(b.set_input_grad(0, results[0]));
  return b.needs_grad(1) ? b.set_input_grad(1, results[1]) : Status();
}

ShardingRule sharding(const OpView& view) {
  const std::string r = linear_head::rows_of(view);
  ShardingRule rule = linear_head::rule(format("{}c,vc,{}->{},{},{}", r, r, r, r, r));
  rule.find('v')->kind = FactorKind::kPhased;
  return rule;
}

Status phases(PhaseBuilder& b) {
  TSR_ASSIGN_OR_RETURN(const linear_head::RowPhases rows, linear_head::emit_row_phases(b));
  TSR_ASSIGN_OR_RETURN(const TensorId loss,
                       b.emit("linear_token_losses_finish",
                              {b.input(0), b.input(1), b.input(2), rows.max, rows.sum, rows.picked}));
  b.set_outputs({loss, rows.max, rows.sum});
  return {};
}

OpCost cost(const OpView& view) { return linear_head::cost(view, 1, linear_head::kStatistics); }

}  // namespace linear_token_losses

extern const OpDef kLinearTokenLosses = {
    .name = linear_token_losses::kName,
    .attrs = linear_head::kAttrs,
    .infer = linear_token_losses::infer,
    .vjp = linear_token_losses::vjp,
    .sharding = linear_token_losses::sharding,
    .cost = linear_token_losses::cost,
    .phases = linear_token_losses::phases,
    .weight = {.operand = 1},
    .index = {.operand = 2, .into = 1, .is_label = true},
    .loss = {.head = LossHead::kTokens},
};

// linear_token_losses_grad(x, w, labels, m, s, dloss), softmax(l) = exp(l - m) / s
//   dx[...] = dloss[...] sum_v dlogits[..., v] w[v],   dw[v] = sum over rows of dloss[...] dlogits[..., v] x[...]
//   x [..., C], w [V, C], labels [...] i32, m, s, dloss [...] -> dx [..., C], dw [V, C] (summed in f32).  dx is
//   partial over v.
namespace linear_token_losses_grad {

constexpr std::string_view kName = "linear_token_losses_grad";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 6));
  TSR_RETURN_IF_ERROR(check_flag(kName, attrs, "allow_tf32"));
  TSR_RETURN_IF_ERROR(linear_head::check_operands(kName, in));
  TSR_RETURN_IF_ERROR(linear_head::check_labels(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 3, "m", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 4, "s", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 5, "dloss", in[0]));
  return linear_head::has_weight_grad(attrs) ? std::vector<TensorType>{in[0], in[1]}
                                             : std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView& view) {
  const std::string r = linear_head::rows_of(view);
  ShardingRule rule = linear_head::rule(format("{}c,vc,{},{},{},{}->{}c{}", r, r, r, r, r, r,
                                               linear_head::has_weight_grad(view.attrs) ? ",vc" : ""));
  reduce_too(rule, linear_head::has_weight_grad(view.attrs) ? r + "v" : "v");
  return rule;
}

OpCost cost(const OpView& view) {
  return linear_head::cost(view, linear_head::has_weight_grad(view.attrs) ? 3 : 2, linear_head::kGradient);
}

}  // namespace linear_token_losses_grad

extern const OpDef kLinearTokenLossesGrad = {
    .name = linear_token_losses_grad::kName,
    .attrs = linear_head::kGradAttrs,
    .infer = linear_token_losses_grad::infer,
    .sharding = linear_token_losses_grad::sharding,
    .cost = linear_token_losses_grad::cost,
    .loss = {.head = LossHead::kTokens, .is_gradient = true},
};

// linear_token_losses_finish(shapes of x, w, labels, m, s, picked)[...] = log s + m - picked, 0 where the label is negative
//   shapes of x [..., C], w [V, C], labels [...] i32, m, s, picked [...] -> loss [...].  As linear_cross_entropy_finish:
//   the shard of v that begins at 0 gets the losses, the others 0.
namespace linear_token_losses_finish {

constexpr std::string_view kName = "linear_token_losses_finish";
const int kShapeOnly[] = {0, 1};

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 6));
  TSR_RETURN_IF_ERROR(linear_head::check_operands(kName, in));
  TSR_RETURN_IF_ERROR(linear_head::check_labels(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 3, "m", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 4, "s", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 5, "picked", in[0]));
  return std::vector<TensorType>{linear_head::statistic_of(in[0])};
}

ShardingRule sharding(const OpView& view) {
  const std::string r = linear_head::rows_of(view);
  return linear_head::rule(format("{}c,vc,{},{},{},{}->{}", r, r, r, r, r, r));
}

OpCost cost(const OpView& view) {
  return traffic_cost(view, 4 * static_cast<double>(view.inputs[2].shape.elements()), kShapeOnly);
}

}  // namespace linear_token_losses_finish

extern const OpDef kLinearTokenLossesFinish = {
    .name = linear_token_losses_finish::kName,
    .infer = linear_token_losses_finish::infer,
    .sharding = linear_token_losses_finish::sharding,
    .cost = linear_token_losses_finish::cost,
    .shape_only = linear_token_losses_finish::kShapeOnly,
    .loss = {.row_max = 3, .picked = 5},
};

}  // namespace tessera
