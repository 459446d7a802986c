// Root mean square norm over the last dim (Zhang and Sennrich, 2019) and its two gradients.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"
#include "graph/phases.h"

namespace tessera {

using namespace ops;

// rms_norm(x, w)[..., c] = x[..., c] * rstd[...] * w[c],  rstd = 1 / sqrt(mean_c(x^2) + eps)
//   x [..., C], w [C] -> y [..., C], rstd [...] (kept for the backward pass; f64 in an f64 graph, else f32)
namespace rms_norm {

constexpr std::string_view kName = "rms_norm";
const AttrSpec kAttrs[] = {{"eps", AttrType::kF64, 1e-5, "added to the mean square"}};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_range(kName, attrs, "eps", 0, kUnbounded));
  TSR_RETURN_IF_ERROR(check_count(kName, in, 2));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "x"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 0, "x", 1));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 1, "w", in[0].dtype));
  TSR_RETURN_IF_ERROR(check_shape(kName, in, 1, "w", Shape{last_extent(in[0].shape)}));
  return std::vector<TensorType>{in[0], {statistics_dtype(in[0].dtype), without_last(in[0].shape)}};
}

Status vjp(VjpBuilder& b) {
  TSR_RETURN_IF_ERROR(check_not_differentiated(b, kName, 1, "rstd"));
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  if (b.needs_grad(0)) {
    TSR_ASSIGN_OR_RETURN(TensorId dx,
                         b.emit("rms_norm_grad_input", {*dy, b.input(0), b.input(1), b.output(1)}));
    TSR_RETURN_IF_ERROR(b.set_input_grad(0, dx));
  }
  if (!b.needs_grad(1)) return {};
  TSR_ASSIGN_OR_RETURN(TensorId dw, b.emit("rms_norm_grad_weight", {*dy, b.input(0), b.output(1)}));
  return b.set_input_grad(1, dw);
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[0].shape.rank() - 1, "c");
  return phased_rule(format("{}c,c->{}c,{}", rows, rows, rows), {}, 'c');
}

Status phases(PhaseBuilder& b) {
  TSR_ASSIGN_OR_RETURN(const TensorId squares, b.emit("row_sum_squares", {b.input(0)}));
  TSR_ASSIGN_OR_RETURN(auto results, b.emit_all("rms_norm_finish", {b.input(0), b.input(1), squares},
                                                {b.attrs().begin(), b.attrs().end()}));
  b.set_outputs(std::move(results));
  return {};
}

OpCost cost(const OpView& view) { return elementwise_cost(view, 4); }

}  // namespace rms_norm

extern const OpDef kRmsNorm = {
    .name = rms_norm::kName,
    .attrs = rms_norm::kAttrs,
    .infer = rms_norm::infer,
    .vjp = rms_norm::vjp,
    .sharding = rms_norm::sharding,
    .cost = rms_norm::cost,
    .phases = rms_norm::phases,
    .fused = {.with_sum = "add_rms_norm"},
};

// With xhat = x * rstd and g = dy * w:  dx = rstd * (g - xhat * mean_c(g * xhat))
//   dy, x [..., C], w [C], rstd [...] -> dx [..., C].  Linear in dy.
namespace rms_norm_grad_input {

constexpr std::string_view kName = "rms_norm_grad_input";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "dy"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 0, "dy", 1));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 1, 0));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 2, "w", in[0].dtype));
  TSR_RETURN_IF_ERROR(check_shape(kName, in, 2, "w", Shape{last_extent(in[0].shape)}));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 3, "rstd", in[0]));
  return std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[0].shape.rank() - 1, "c");
  return phased_rule(format("{}c,{}c,c,{}->{}c", rows, rows, rows, rows), {{0}}, 'c');
}

Status phases(PhaseBuilder& b) {
  const TensorId dy = b.input(0), x = b.input(1), w = b.input(2), rstd = b.input(3);
  TSR_ASSIGN_OR_RETURN(const TensorId sum, b.emit("rms_norm_grad_sums", {dy, x, w, rstd}));
  TSR_ASSIGN_OR_RETURN(auto results, b.emit_all("rms_norm_grad_finish", {dy, x, w, rstd, sum}));
  b.set_outputs(std::move(results));
  return {};
}

OpCost cost(const OpView& view) { return elementwise_cost(view, 9); }

}  // namespace rms_norm_grad_input

extern const OpDef kRmsNormGradInput = {
    .name = rms_norm_grad_input::kName,
    .infer = rms_norm_grad_input::infer,
    .sharding = rms_norm_grad_input::sharding,
    .cost = rms_norm_grad_input::cost,
    .phases = rms_norm_grad_input::phases,
    .fused = {.joint_gradient = "rms_norm_grad"},
};

// dw[c] = sum over rows of dy[..., c] * x[..., c] * rstd[...]
//   dy, x [..., C], rstd [...] -> dw [C].  Linear in dy; c may be sharded, since rstd is given.
namespace rms_norm_grad_weight {

constexpr std::string_view kName = "rms_norm_grad_weight";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "dy"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(kName, in, 0, "dy", 1));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 1, 0));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 2, "rstd", in[0]));
  return std::vector<TensorType>{{in[0].dtype, Shape{last_extent(in[0].shape)}}};
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[0].shape.rank() - 1, "c");
  return make_rule(format("{}c,{}c,{}->c", rows, rows, rows), {{0}});
}

OpCost cost(const OpView& view) {
  return traffic_cost(view, 3.0 * static_cast<double>(view.inputs[0].shape.elements()));
}

}  // namespace rms_norm_grad_weight

extern const OpDef kRmsNormGradWeight = {
    .name = rms_norm_grad_weight::kName,
    .infer = rms_norm_grad_weight::infer,
    .sharding = rms_norm_grad_weight::sharding,
    .cost = rms_norm_grad_weight::cost,
    .fused = {.joint_gradient = "rms_norm_grad", .is_weight_gradient = true},
};

// rms_norm_grad: both gradients at once, with another gradient of x added: dx as rms_norm_grad_input plus
// addend, dw as rms_norm_grad_weight.
//   dy, x [..., C], w [C], rstd [...], addend [..., C] optional -> dx [..., C], dw [C].
// Linear in dy and addend together. Lowering makes it from the two ops and the sum that follows
// (parallel/lowering/kernel_fusion.h), so that dy and x are read once.
namespace rms_norm_grad {

constexpr std::string_view kName = "rms_norm_grad";
const AttrSpec kAttrs[] = {kWideSums};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4, 5));
  Inferred dx = rms_norm_grad_input::infer(in.first(4), attrs);
  if (!dx.ok()) return dx.status().with_context(kName);
  if (in.size() == 5) TSR_RETURN_IF_ERROR(check_same_type(kName, in, 4, 0));
  return std::vector<TensorType>{in[0], {sums_dtype(in[0].dtype, attrs), in[2].shape}};
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[0].shape.rank() - 1, "c");
  const bool adds = view.inputs.size() == 5;
  ShardingRule rule =
      make_rule(format("{}c,{}c,c,{}{}->{}c,c", rows, rows, rows, adds ? "," + rows + "c" : "", rows),
                adds ? LinearSets{{0, 4}} : LinearSets{{0}}, "c");
  reduce_too(rule, rows);
  return rule;
}

OpCost cost(const OpView& view) {
  return traffic_cost(view, 12.0 * static_cast<double>(view.inputs[0].shape.elements()));
}

}  // namespace rms_norm_grad

extern const OpDef kRmsNormGrad = {.name = rms_norm_grad::kName,
                                   .attrs = rms_norm_grad::kAttrs,
                                   .infer = rms_norm_grad::infer,
                                   .sharding = rms_norm_grad::sharding,
                                   .cost = rms_norm_grad::cost,
                                   .in_place = kInPlaceFirst};

// add_rms_norm(x, addend, w): sum = x + addend, rounded to its type, and rms_norm of that
//   x, addend [..., C], w [C] -> sum, y [..., C], rstd [...].  Lowering makes it from adjacent add and
//   rms_norm on a device (parallel/lowering/kernel_fusion.h).
namespace add_rms_norm {

constexpr std::string_view kName = "add_rms_norm";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 0, 1));
  const TensorType operands[] = {in[0], in[2]};
  TSR_ASSIGN_OR_RETURN(std::vector<TensorType> results, rms_norm::infer(operands, attrs));
  results.insert(results.begin(), in[0]);
  return results;
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[0].shape.rank() - 1, "c");
  return make_rule(format("{}c,{}c,c->{}c,{}c,{}", rows, rows, rows, rows, rows), {}, "c");
}

OpCost cost(const OpView& view) { return elementwise_cost(view, 5); }

}  // namespace add_rms_norm

extern const OpDef kAddRmsNorm = {.name = add_rms_norm::kName,
                                  .attrs = rms_norm::kAttrs,
                                  .infer = add_rms_norm::infer,
                                  .sharding = add_rms_norm::sharding,
                                  .cost = add_rms_norm::cost,
                                  .in_place = kInPlaceFirst};

}  // namespace tessera
