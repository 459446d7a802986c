// Layer norm over the last dim (Ba, Kiros and Hinton, 2016) and its two gradients.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"
#include "graph/phases.h"

namespace tessera {

using namespace ops;

// layer_norm(x, w, b)[..., c] = (x[..., c] - mean[...]) * rstd[...] * w[c] + b[c],  rstd = 1 / sqrt(var_c(x)
// + eps)
//   x [..., C], w [C], b [C] -> y [..., C], mean [...], rstd [...] (kept for the backward pass; f64 in an f64
//   graph, else f32).  The variance divides by C.
namespace layer_norm {

constexpr std::string_view kName = "layer_norm";
const AttrSpec kAttrs[] = {{"eps", AttrType::kF64, 1e-5, "added to the variance"}};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_range(kName, attrs, "eps", 0, kUnbounded));
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 0, "x", 1));
  for (int i : {1, 2}) {
    TSR_RETURN_IF_ERROR(check_dtype(kName, in, i, i == 1 ? "w" : "b", in[0].dtype));
    TSR_RETURN_IF_ERROR(check_shape(kName, in, i, i == 1 ? "w" : "b", Shape{last_extent(in[0].shape)}));
  }
  const TensorType statistic{statistics_dtype(in[0].dtype), without_last(in[0].shape)};
  return std::vector<TensorType>{in[0], statistic, statistic};
}

Status vjp(VjpBuilder& b) {
  TSR_RETURN_IF_ERROR(check_not_differentiated(b, kName, 1, "mean"));
  TSR_RETURN_IF_ERROR(check_not_differentiated(b, kName, 2, "rstd"));
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  const TensorId x = b.input(0), mean = b.output(1), rstd = b.output(2);
  TSR_RETURN_IF_ERROR(set_grad(b, 0, [&] {
    return b.emit("layer_norm_grad_input", {*dy, x, b.input(1), mean, rstd});
  }));
  if (!b.needs_grad(1) && !b.needs_grad(2)) return {};
  const TensorId operands[] = {*dy, x, mean, rstd};
  TSR_ASSIGN_OR_RETURN(const auto grads, b.emit_all("layer_norm_grad_weight", operands));
  for (int i : {1, 2})
    if (b.needs_grad(i)) TSR_RETURN_IF_ERROR(b.set_input_grad(i, grads[static_cast<size_t>(i - 1)]));
  return {};
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[0].shape.rank() - 1, "c");
  return phased_rule(format("{}c,c,c->{}c,{},{}", rows, rows, rows, rows), {}, 'c');
}

Status phases(PhaseBuilder& b) {
  TSR_ASSIGN_OR_RETURN(const TensorId sum, b.emit("row_sum", {b.input(0)}));
  TSR_ASSIGN_OR_RETURN(const TensorId squares, b.emit("row_sum_squares", {b.input(0), sum}));
  TSR_ASSIGN_OR_RETURN(auto results,
                       b.emit_all("layer_norm_finish", {b.input(0), b.input(1), b.input(2), sum, squares},
                                  {b.attrs().begin(), b.attrs().end()}));
  b.set_outputs(std::move(results));
  return {};
}

OpCost cost(const OpView& view) { return elementwise_cost(view, 8); }

}  // namespace layer_norm

extern const OpDef kLayerNorm = {
    .name = layer_norm::kName,
    .attrs = layer_norm::kAttrs,
    .infer = layer_norm::infer,
    .vjp = layer_norm::vjp,
    .sharding = layer_norm::sharding,
    .cost = layer_norm::cost,
    .phases = layer_norm::phases,
    .fused = {.with_sum = "add_layer_norm"},
};

// With xhat = (x - mean) * rstd and g = dy * w:  dx = rstd * (g - mean_c(g) - xhat * mean_c(g * xhat))
//   dy, x [..., C], w [C], mean [...], rstd [...] -> dx [..., C].  Linear in dy.
namespace layer_norm_grad_input {

constexpr std::string_view kName = "layer_norm_grad_input";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 5));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "dy"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 0, "dy", 1));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 1, 0));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 2, "w", in[0].dtype));
  TSR_RETURN_IF_ERROR(check_shape(kName, in, 2, "w", Shape{last_extent(in[0].shape)}));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 3, "mean", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 4, "rstd", in[0]));
  return std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[0].shape.rank() - 1, "c");
  return phased_rule(format("{}c,{}c,c,{},{}->{}c", rows, rows, rows, rows, rows), {{0}}, 'c');
}

Status phases(PhaseBuilder& b) {
  const TensorId dy = b.input(0), x = b.input(1), w = b.input(2), mean = b.input(3), rstd = b.input(4);
  TSR_ASSIGN_OR_RETURN(const auto sums, b.emit_all("layer_norm_grad_sums", {dy, x, w, mean, rstd}));
  TSR_ASSIGN_OR_RETURN(auto results,
                       b.emit_all("layer_norm_grad_finish", {dy, x, w, mean, rstd, sums[0], sums[1]}));
  b.set_outputs(std::move(results));
  return {};
}

OpCost cost(const OpView& view) { return elementwise_cost(view, 11); }

}  // namespace layer_norm_grad_input

extern const OpDef kLayerNormGradInput = {
    .name = layer_norm_grad_input::kName,
    .infer = layer_norm_grad_input::infer,
    .sharding = layer_norm_grad_input::sharding,
    .cost = layer_norm_grad_input::cost,
    .phases = layer_norm_grad_input::phases,
    .fused = {.joint_gradient = "layer_norm_grad"},
};

// dw[c] = sum over rows of dy[..., c] * (x[..., c] - mean[...]) * rstd[...];  db[c] = sum over rows of
// dy[..., c]
//   dy, x [..., C], mean [...], rstd [...] -> dw [C], db [C].  Linear in dy; c may be sharded, since the
//   statistics are given.
namespace layer_norm_grad_weight {

constexpr std::string_view kName = "layer_norm_grad_weight";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "dy"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 0, "dy", 1));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 1, 0));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 2, "mean", in[0]));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 3, "rstd", in[0]));
  const TensorType weight{in[0].dtype, Shape{last_extent(in[0].shape)}};
  return std::vector<TensorType>{weight, weight};
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[0].shape.rank() - 1, "c");
  return make_rule(format("{}c,{}c,{},{}->c,c", rows, rows, rows, rows), {{0}});
}

OpCost cost(const OpView& view) {
  return traffic_cost(view, 5.0 * static_cast<double>(view.inputs[0].shape.elements()));
}

}  // namespace layer_norm_grad_weight

extern const OpDef kLayerNormGradWeight = {
    .name = layer_norm_grad_weight::kName,
    .infer = layer_norm_grad_weight::infer,
    .sharding = layer_norm_grad_weight::sharding,
    .cost = layer_norm_grad_weight::cost,
    .fused = {.joint_gradient = "layer_norm_grad", .is_weight_gradient = true},
};

// layer_norm_grad: both gradients at once, with another gradient of x added: dx as layer_norm_grad_input plus
// addend, dw and db as layer_norm_grad_weight.
//   dy, x [..., C], w [C], mean [...], rstd [...], addend [..., C] optional -> dx [..., C], dw [C], db [C];
//   with column_sums also [C], the sum of dx over all dims except its last.
// Linear in dy and addend together. Lowering makes it from the two ops and the sums that follow
// (parallel/lowering/kernel_fusion.h), so that dy and x are read once, and dx is not read again for the
// gradient of the bias before it.
namespace layer_norm_grad {

constexpr std::string_view kName = "layer_norm_grad";
const AttrSpec kAttrs[] = {
    {"column_sums", AttrType::kI64, AttrValue(int64_t{0}), "1: a fourth result, dx summed over its rows"},
    kWideSums,
};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 5, 6));
  Inferred dx = layer_norm_grad_input::infer(in.first(5), attrs);
  if (!dx.ok()) return dx.status().with_context(kName);
  if (in.size() == 6) TSR_RETURN_IF_ERROR(check_same_type(kName, in, 5, 0));
  const TensorType sum{sums_dtype(in[0].dtype, attrs), in[2].shape};
  std::vector<TensorType> results = {in[0], sum, sum};
  if (attr_i64(attrs, "column_sums") == 1) results.push_back(sum);
  return results;
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[0].shape.rank() - 1, "c");
  const bool adds = view.inputs.size() == 6, sums = attr_i64(view.attrs, "column_sums") == 1;
  ShardingRule rule = make_rule(format("{}c,{}c,c,{},{}{}->{}c,c,c{}", rows, rows, rows, rows,
                                       adds ? "," + rows + "c" : "", rows, sums ? ",c" : ""),
                                adds ? LinearSets{{0, 5}} : LinearSets{{0}}, "c");
  reduce_too(rule, rows);
  return rule;
}

OpCost cost(const OpView& view) {
  const double each = attr_i64(view.attrs, "column_sums") == 1 ? 17 : 16;
  return traffic_cost(view, each * static_cast<double>(view.inputs[0].shape.elements()));
}

}  // namespace layer_norm_grad

extern const OpDef kLayerNormGrad = {.name = layer_norm_grad::kName,
                                     .attrs = layer_norm_grad::kAttrs,
                                     .infer = layer_norm_grad::infer,
                                     .sharding = layer_norm_grad::sharding,
                                     .cost = layer_norm_grad::cost,
                                     .in_place = kInPlaceFirst};

// add_layer_norm(x, addend, w, b): sum = x + addend, rounded to its type, and layer_norm of that
//   x, addend [..., C], w, b [C] -> sum, y [..., C], mean [...], rstd [...].  Lowering makes it from adjacent
//   add and layer_norm on a device (parallel/lowering/kernel_fusion.h).
namespace add_layer_norm {

constexpr std::string_view kName = "add_layer_norm";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 0, 1));
  const TensorType operands[] = {in[0], in[2], in[3]};
  TSR_ASSIGN_OR_RETURN(std::vector<TensorType> results, layer_norm::infer(operands, attrs));
  results.insert(results.begin(), in[0]);
  return results;
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[0].shape.rank() - 1, "c");
  return make_rule(format("{}c,{}c,c,c->{}c,{}c,{},{}", rows, rows, rows, rows, rows, rows), {}, "c");
}

OpCost cost(const OpView& view) { return elementwise_cost(view, 9); }

}  // namespace add_layer_norm

extern const OpDef kAddLayerNorm = {.name = add_layer_norm::kName,
                                    .attrs = layer_norm::kAttrs,
                                    .infer = add_layer_norm::infer,
                                    .sharding = add_layer_norm::sharding,
                                    .cost = add_layer_norm::cost,
                                    .in_place = kInPlaceFirst};

}  // namespace tessera
