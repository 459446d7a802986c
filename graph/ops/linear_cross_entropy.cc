// linear_cross_entropy: the output head x w^T and the cross entropy of its logits as one op, so that no [...,
// V] tensor of logits exists: kernels make a few rows of them at a time in their workspace. The gradient is
// dlogits[..., v] = softmax(x w^T)[..., v] - [v = labels[...]]. It takes three matmuls, as many as separate
// head and loss, since it makes loss and gradient from the same logits (graph/transform/fusion.h replaces
// the forward op by it). A sharded vocabulary needs maximum and sum of every row from all shards first: its
// phased form makes the logits three times.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"
#include "graph/phases.h"

namespace tessera {

using namespace ops;

namespace {

const AttrSpec kHeadAttrs[] = {allow_tf32_spec()};
const AttrSpec kGradAttrs[] = {
    {"weight_grad", AttrType::kI64, AttrValue(int64_t{1}), "0: w is not trained, there is no dw"},
    allow_tf32_spec(),
};

bool has_weight_grad(Attrs attrs) { return attr_i64(attrs, "weight_grad") != 0; }

// Letters of the rows; c and v are those of w.
std::string rows_of(const OpView& view) { return leading_letters(view.inputs[0].shape.rank() - 1, "cv"); }

// Operands x [..., C], w [V, C].
Status check_head(std::string_view op, Types in) {
  TSR_RETURN_IF_ERROR(check_float(op, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(op, in, 0, "x", 1));
  TSR_RETURN_IF_ERROR(check_dtype(op, in, 1, "w", in[0].dtype));
  TSR_RETURN_IF_ERROR(check_rank(op, in, 1, "w", 2));
  return check_extent(op, in, 1, "w", 1, last_extent(in[0].shape));
}

Status check_labels(std::string_view op, Types in, int i) {
  return check_indices(op, in, i, "labels", without_last(in[0].shape));
}

TensorType scalar_beside(const TensorType& x) { return {statistics_dtype(x.dtype), {}}; }
TensorType statistic_of(const TensorType& x) { return {statistics_dtype(x.dtype), without_last(x.shape)}; }

Status check_scalar(std::string_view op, Types in, int i, std::string_view name) {
  TSR_RETURN_IF_ERROR(check_dtype(op, in, i, name, statistics_dtype(in[0].dtype)));
  return check_shape(op, in, i, name, {});
}

// c is whole: the loss is not linear in logits that are addends.
ShardingRule head_rule(const std::string& text) { return make_rule(text, {}, "c"); }

// Cost of `products` matmuls of the head and `others` operations a logit. Logits stay in the workspace.
OpCost head_cost(const OpView& view, double products, double others) {
  const double rows = static_cast<double>(without_last(view.inputs[0].shape).elements());
  const double C = static_cast<double>(view.inputs[1].shape[1]),
               V = static_cast<double>(view.inputs[1].shape[0]);
  return traffic_cost(view, rows * V * (2 * C * products + others));
}

constexpr double kStatistics = 5, kGradient = 4;  // operations a logit: maximum, sum of exponentials; dlogits

}  // namespace

// linear_cross_entropy(x, w, labels, scale) = scale * sum over rows of log(sum_v exp(l[..., v])) - l[...,
// labels[...]], l = x w^T; 0 for a row whose label is negative (ignored)
//   x [..., C], w [V, C], labels [...] i32, scale [] -> loss [] (f64 in an f64 graph, else f32)
namespace linear_cross_entropy {

constexpr std::string_view kName = "linear_cross_entropy";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4));
  TSR_RETURN_IF_ERROR(check_flag(kName, attrs, "allow_tf32"));
  TSR_RETURN_IF_ERROR(check_head(kName, in));
  TSR_RETURN_IF_ERROR(check_labels(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_scalar(kName, in, 3, "scale"));
  return std::vector<TensorType>{scalar_beside(in[0])};
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
  const std::string r = rows_of(view);
  ShardingRule rule = head_rule(format("{}c,vc,{},->", r, r));
  rule.find('v')->kind = FactorKind::kPhased;
  return rule;
}

Status phases(PhaseBuilder& b) {
  const TensorId x = b.input(0), w = b.input(1), labels = b.input(2);
  TSR_ASSIGN_OR_RETURN(const TensorId max, b.emit("linear_row_max", {x, w}, {allow_tf32_as(b.attrs())}));
  TSR_ASSIGN_OR_RETURN(const auto sums,
                       b.emit_all("linear_row_sums", {x, w, labels, max}, {allow_tf32_as(b.attrs())}));
  TSR_ASSIGN_OR_RETURN(const TensorId loss, b.emit("linear_cross_entropy_finish",
                                                   {x, w, labels, max, sums[0], sums[1], b.input(3)}));
  b.set_outputs({loss});
  return {};
}

OpCost cost(const OpView& view) { return head_cost(view, 1, kStatistics); }

}  // namespace linear_cross_entropy

extern const OpDef kLinearCrossEntropy = {.name = linear_cross_entropy::kName,
                                          .attrs = kHeadAttrs,
                                          .infer = linear_cross_entropy::infer,
                                          .vjp = linear_cross_entropy::vjp,
                                          .sharding = linear_cross_entropy::sharding,
                                          .cost = linear_cross_entropy::cost,
                                          .phases = linear_cross_entropy::phases};

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
  TSR_RETURN_IF_ERROR(check_head(kName, in));
  TSR_RETURN_IF_ERROR(check_labels(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_scalar(kName, in, 3, "scale"));
  TSR_RETURN_IF_ERROR(check_scalar(kName, in, 4, "dloss"));
  std::vector<TensorType> results = {in[0], scalar_beside(in[0])};
  if (has_weight_grad(attrs)) results.push_back(in[1]);
  return results;
}

ShardingRule sharding(const OpView& view) {
  const std::string r = rows_of(view);
  ShardingRule rule =
      head_rule(format("{}c,vc,{},,->{}c,{}", r, r, r, has_weight_grad(view.attrs) ? ",vc" : ""));
  reduce_too(rule, r);
  rule.find('v')->kind = FactorKind::kPhased;
  return rule;
}

Status phases(PhaseBuilder& b) {
  const TensorId x = b.input(0), w = b.input(1), labels = b.input(2), scale = b.input(3);
  TSR_ASSIGN_OR_RETURN(const TensorId max, b.emit("linear_row_max", {x, w}, {allow_tf32_as(b.attrs())}));
  TSR_ASSIGN_OR_RETURN(const auto sums,
                       b.emit_all("linear_row_sums", {x, w, labels, max}, {allow_tf32_as(b.attrs())}));
  TSR_ASSIGN_OR_RETURN(const TensorId loss,
                       b.emit("linear_cross_entropy_finish", {x, w, labels, max, sums[0], sums[1], scale}));
  TSR_ASSIGN_OR_RETURN(const auto grads, b.emit_all("linear_cross_entropy_grad_finish",
                                                    {x, w, labels, max, sums[0], scale, b.input(4)},
                                                    {b.attrs().begin(), b.attrs().end()}));
  std::vector<TensorId> results = {grads[0], loss};
  if (grads.size() > 1) results.push_back(grads[1]);
  b.set_outputs(std::move(results));
  return {};
}

OpCost cost(const OpView& view) {
  return head_cost(view, has_weight_grad(view.attrs) ? 3 : 2, kStatistics + kGradient);
}

}  // namespace linear_cross_entropy_grad

extern const OpDef kLinearCrossEntropyGrad = {.name = linear_cross_entropy_grad::kName,
                                              .attrs = kGradAttrs,
                                              .infer = linear_cross_entropy_grad::infer,
                                              .sharding = linear_cross_entropy_grad::sharding,
                                              .cost = linear_cross_entropy_grad::cost,
                                              .phases = linear_cross_entropy_grad::phases};

// linear_row_max(x, w)[...] = max_v l[..., v]
//   x [..., C], w [V, C] -> m [...] (f64 in an f64 graph, else f32)
namespace linear_row_max {

constexpr std::string_view kName = "linear_row_max";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_flag(kName, attrs, "allow_tf32"));
  TSR_RETURN_IF_ERROR(check_head(kName, in));
  return std::vector<TensorType>{statistic_of(in[0])};
}

ShardingRule sharding(const OpView& view) {
  const std::string r = rows_of(view);
  ShardingRule rule = head_rule(format("{}c,vc->{}", r, r));
  rule.find('v')->reduce = ReduceKind::kMax;
  return rule;
}

OpCost cost(const OpView& view) { return head_cost(view, 1, 1); }

}  // namespace linear_row_max

extern const OpDef kLinearRowMax = {.name = linear_row_max::kName,
                                    .attrs = kHeadAttrs,
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
  TSR_RETURN_IF_ERROR(check_head(kName, in));
  TSR_RETURN_IF_ERROR(check_labels(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 3, "m", in[0]));
  return std::vector<TensorType>{in[3], in[3]};
}

ShardingRule sharding(const OpView& view) {
  const std::string r = rows_of(view);
  return head_rule(format("{}c,vc,{},{}->{},{}", r, r, r, r, r));
}

OpCost cost(const OpView& view) { return head_cost(view, 1, kStatistics - 1); }

}  // namespace linear_row_sums

extern const OpDef kLinearRowSums = {.name = linear_row_sums::kName,
                                     .attrs = kHeadAttrs,
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
  TSR_RETURN_IF_ERROR(check_head(kName, in));
  TSR_RETURN_IF_ERROR(check_labels(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 3, "m", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 4, "s", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 5, "picked", in[0]));
  TSR_RETURN_IF_ERROR(check_scalar(kName, in, 6, "scale"));
  return std::vector<TensorType>{scalar_beside(in[0])};
}

ShardingRule sharding(const OpView& view) {
  const std::string r = rows_of(view);
  return head_rule(format("{}c,vc,{},{},{},{},->", r, r, r, r, r));
}

OpCost cost(const OpView& view) {
  return traffic_cost(view, 4 * static_cast<double>(view.inputs[2].shape.elements()), kShapeOnly);
}

}  // namespace linear_cross_entropy_finish

extern const OpDef kLinearCrossEntropyFinish = {.name = linear_cross_entropy_finish::kName,
                                                .infer = linear_cross_entropy_finish::infer,
                                                .sharding = linear_cross_entropy_finish::sharding,
                                                .cost = linear_cross_entropy_finish::cost,
                                                .shape_only = linear_cross_entropy_finish::kShapeOnly};

// linear_cross_entropy_grad_finish(x, w, labels, m, s, scale, dloss): dx, dw of linear_cross_entropy_grad
// from complete statistics, softmax(l) = exp(l - m) / s
//   x [..., C], w [V, C], labels [...] i32, m, s [...], scale, dloss [] -> dx [..., C], dw [V, C].  dx is
//   partial over v.
namespace linear_cross_entropy_grad_finish {

constexpr std::string_view kName = "linear_cross_entropy_grad_finish";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 7));
  TSR_RETURN_IF_ERROR(check_flag(kName, attrs, "allow_tf32"));
  TSR_RETURN_IF_ERROR(check_head(kName, in));
  TSR_RETURN_IF_ERROR(check_labels(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 3, "m", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 4, "s", in[0]));
  TSR_RETURN_IF_ERROR(check_scalar(kName, in, 5, "scale"));
  TSR_RETURN_IF_ERROR(check_scalar(kName, in, 6, "dloss"));
  return has_weight_grad(attrs) ? std::vector<TensorType>{in[0], in[1]} : std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView& view) {
  const std::string r = rows_of(view);
  ShardingRule rule =
      head_rule(format("{}c,vc,{},{},{},,->{}c{}", r, r, r, r, r, has_weight_grad(view.attrs) ? ",vc" : ""));
  reduce_too(rule, has_weight_grad(view.attrs) ? r + "v" : "v");
  return rule;
}

OpCost cost(const OpView& view) { return head_cost(view, has_weight_grad(view.attrs) ? 3 : 2, kGradient); }

}  // namespace linear_cross_entropy_grad_finish

extern const OpDef kLinearCrossEntropyGradFinish = {.name = linear_cross_entropy_grad_finish::kName,
                                                    .attrs = kGradAttrs,
                                                    .infer = linear_cross_entropy_grad_finish::infer,
                                                    .sharding = linear_cross_entropy_grad_finish::sharding,
                                                    .cost = linear_cross_entropy_grad_finish::cost};

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
  TSR_RETURN_IF_ERROR(check_head(kName, in));
  TSR_RETURN_IF_ERROR(check_labels(kName, in, 2));
  return std::vector<TensorType>(3, statistic_of(in[0]));
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
  const std::string r = rows_of(view);
  ShardingRule rule = head_rule(format("{}c,vc,{}->{},{},{}", r, r, r, r, r));
  rule.find('v')->kind = FactorKind::kPhased;
  return rule;
}

Status phases(PhaseBuilder& b) {
  const TensorId x = b.input(0), w = b.input(1), labels = b.input(2);
  TSR_ASSIGN_OR_RETURN(const TensorId max, b.emit("linear_row_max", {x, w}, {allow_tf32_as(b.attrs())}));
  TSR_ASSIGN_OR_RETURN(const auto sums,
                       b.emit_all("linear_row_sums", {x, w, labels, max}, {allow_tf32_as(b.attrs())}));
  TSR_ASSIGN_OR_RETURN(const TensorId loss,
                       b.emit("linear_token_losses_finish", {x, w, labels, max, sums[0], sums[1]}));
  b.set_outputs({loss, max, sums[0]});
  return {};
}

OpCost cost(const OpView& view) { return head_cost(view, 1, kStatistics); }

}  // namespace linear_token_losses

extern const OpDef kLinearTokenLosses = {.name = linear_token_losses::kName,
                                         .attrs = kHeadAttrs,
                                         .infer = linear_token_losses::infer,
                                         .vjp = linear_token_losses::vjp,
                                         .sharding = linear_token_losses::sharding,
                                         .cost = linear_token_losses::cost,
                                         .phases = linear_token_losses::phases};

// linear_token_losses_grad(x, w, labels, m, s, dloss), softmax(l) = exp(l - m) / s
//   dx[...] = dloss[...] sum_v dlogits[..., v] w[v],   dw[v] = sum over rows of dloss[...] dlogits[..., v] x[...]
//   x [..., C], w [V, C], labels [...] i32, m, s, dloss [...] -> dx [..., C], dw [V, C] (summed in f32).  dx is
//   partial over v.
namespace linear_token_losses_grad {

constexpr std::string_view kName = "linear_token_losses_grad";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 6));
  TSR_RETURN_IF_ERROR(check_flag(kName, attrs, "allow_tf32"));
  TSR_RETURN_IF_ERROR(check_head(kName, in));
  TSR_RETURN_IF_ERROR(check_labels(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 3, "m", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 4, "s", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 5, "dloss", in[0]));
  return has_weight_grad(attrs) ? std::vector<TensorType>{in[0], in[1]} : std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView& view) {
  const std::string r = rows_of(view);
  ShardingRule rule = head_rule(
      format("{}c,vc,{},{},{},{}->{}c{}", r, r, r, r, r, r, has_weight_grad(view.attrs) ? ",vc" : ""));
  reduce_too(rule, has_weight_grad(view.attrs) ? r + "v" : "v");
  return rule;
}

OpCost cost(const OpView& view) { return head_cost(view, has_weight_grad(view.attrs) ? 3 : 2, kGradient); }

}  // namespace linear_token_losses_grad

extern const OpDef kLinearTokenLossesGrad = {.name = linear_token_losses_grad::kName,
                                             .attrs = kGradAttrs,
                                             .infer = linear_token_losses_grad::infer,
                                             .sharding = linear_token_losses_grad::sharding,
                                             .cost = linear_token_losses_grad::cost};

// linear_token_losses_finish(shapes of x, w, labels, m, s, picked)[...] = log s + m - picked, 0 where the label is negative
//   shapes of x [..., C], w [V, C], labels [...] i32, m, s, picked [...] -> loss [...].  As linear_cross_entropy_finish:
//   the shard of v that begins at 0 gets the losses, the others 0.
namespace linear_token_losses_finish {

constexpr std::string_view kName = "linear_token_losses_finish";
const int kShapeOnly[] = {0, 1};

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 6));
  TSR_RETURN_IF_ERROR(check_head(kName, in));
  TSR_RETURN_IF_ERROR(check_labels(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 3, "m", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 4, "s", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 5, "picked", in[0]));
  return std::vector<TensorType>{statistic_of(in[0])};
}

ShardingRule sharding(const OpView& view) {
  const std::string r = rows_of(view);
  return head_rule(format("{}c,vc,{},{},{},{}->{}", r, r, r, r, r, r));
}

OpCost cost(const OpView& view) {
  return traffic_cost(view, 4 * static_cast<double>(view.inputs[2].shape.elements()), kShapeOnly);
}

}  // namespace linear_token_losses_finish

extern const OpDef kLinearTokenLossesFinish = {.name = linear_token_losses_finish::kName,
                                               .infer = linear_token_losses_finish::infer,
                                               .sharding = linear_token_losses_finish::sharding,
                                               .cost = linear_token_losses_finish::cost,
                                               .shape_only = linear_token_losses_finish::kShapeOnly};

}  // namespace tessera
