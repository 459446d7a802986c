// Step sizes and decays of a recurrent state, by token and head (Mamba-2, Dao and Gu, 2024; gated delta rule, Yang et
// al., 2025): step_decay and its gradient.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace {

const AttrSpec kStepAttrs[] = {
    {"least", AttrType::kF64, 0.0, "smallest step"},
    {"most", AttrType::kF64, 1e300, "largest step; 1e300: any"},
};

// x [..., H], log_rate [H] and bias [H], both statistics, from operand `first` on.
Status check_step_operands(std::string_view op, Types in, Attrs attrs, int first) {
  const double least = attr_f64(attrs, "least"), most = attr_f64(attrs, "most");
  if (!(least >= 0 && least <= most))
    return Status(StatusCode::kInvalidArgument,
                  format("{}: steps are {} to {}, wanted 0 <= least <= most", op, least, most));
  TSR_RETURN_IF_ERROR(check_float(op, in, first, "x"));
  TSR_RETURN_IF_ERROR(check_rank_at_least(op, in, first, "x", 1));
  const TensorType& x = in[static_cast<size_t>(first)];
  for (const auto& [i, name] : {std::pair(first + 1, "log_rate"), std::pair(first + 2, "bias")}) {
    TSR_RETURN_IF_ERROR(check_dtype(op, in, i, name, statistics_dtype(x.dtype)));
    TSR_RETURN_IF_ERROR(check_shape(op, in, i, name, Shape{last_extent(x.shape)}));
  }
  return {};
}

}  // namespace

// step_decay(x, log_rate, bias):
//   step[..., h] = softplus(x[..., h] + bias[h]), at least `least` and at most `most`
//   log_decay[..., h] = -exp(log_rate[h]) * step[..., h]
//   x [..., H], log_rate [H], bias [H] -> step, log_decay [..., H].  All except x are f64 in an f64 graph, else f32: in 16
//   bits a state that decays slowly would decay at another rate, or not at all.
namespace step_decay {

constexpr std::string_view kName = "step_decay";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_step_operands(kName, in, attrs, 0));
  const TensorType result = {statistics_dtype(in[0].dtype), in[0].shape};
  return std::vector<TensorType>{result, result};
}

Status vjp(VjpBuilder& b) {
  std::vector<TensorId> operands;
  if (!b.output_grad(0) && !b.output_grad(1)) return {};
  for (const int i : {0, 1}) {
    auto grad = b.output_grad(i);
    if (!grad) {
      TSR_ASSIGN_OR_RETURN(grad, b.emit("zeros_like", {b.output(i)}));
    }
    operands.push_back(*grad);
  }
  for (const int i : {0, 1, 2}) operands.push_back(b.input(i));
  TSR_ASSIGN_OR_RETURN(const auto grads,
                       b.emit_all("step_decay_grad", operands, {b.attrs().begin(), b.attrs().end()}));
  for (const int i : {0, 1, 2})
    if (b.needs_grad(i)) TSR_RETURN_IF_ERROR(b.set_input_grad(i, grads[static_cast<size_t>(i)]));
  return {};
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[0].shape.rank() - 1, "h");
  return make_rule(format("{}h,h,h->{}h,{}h", rows, rows, rows));
}

}  // namespace step_decay

extern const OpDef kStepDecay = {.name = step_decay::kName,
                                 .attrs = kStepAttrs,
                                 .infer = step_decay::infer,
                                 .vjp = step_decay::vjp,
                                 .sharding = step_decay::sharding,
                                 .cost = elementwise_cost<12>};

// step_decay_grad(dstep, dlog_decay, x, log_rate, bias): with z = x + bias and g = dstep - exp(log_rate) * dlog_decay,
//   dx = g * sigmoid(z) where least <= softplus(z) <= most, else 0
//   dlog_rate[h] = sum over rows of dlog_decay * log_decay,   dbias[h] = sum over rows of dx
//   -> dx as x, dlog_rate [H], dbias [H].  Linear in dstep and dlog_decay together.
namespace step_decay_grad {

constexpr std::string_view kName = "step_decay_grad";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 5));
  TSR_RETURN_IF_ERROR(check_step_operands(kName, in, attrs, 2));
  for (const auto& [i, name] : {std::pair(0, "dstep"), std::pair(1, "dlog_decay")}) {
    TSR_RETURN_IF_ERROR(check_dtype(kName, in, i, name, statistics_dtype(in[2].dtype)));
    TSR_RETURN_IF_ERROR(check_shape(kName, in, i, name, in[2].shape));
  }
  return std::vector<TensorType>{in[2], in[3], in[4]};
}

ShardingRule sharding(const OpView& view) {
  const std::string rows = leading_letters(view.inputs[2].shape.rank() - 1, "h");
  ShardingRule rule = make_rule(format("{}h,{}h,{}h,h,h->{}h,h,h", rows, rows, rows, rows), {{0, 1}});
  reduce_too(rule, rows);
  return rule;
}

}  // namespace step_decay_grad

extern const OpDef kStepDecayGrad = {.name = step_decay_grad::kName,
                                     .attrs = kStepAttrs,
                                     .infer = step_decay_grad::infer,
                                     .sharding = step_decay_grad::sharding,
                                     .cost = elementwise_cost<16>};

}  // namespace tessera
