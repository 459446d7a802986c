// Causal depthwise convolution over the tokens of a sequence (Poli et al., 2023; Mamba, Gu and Dao, 2023).
#include <algorithm>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "graph/ops/op_support.h"
#include "graph/serving_builder.h"

namespace tessera {

using namespace ops;

namespace {

constexpr int64_t kMostTaps = 8;

const AttrSpec kConvAttrs[] = {
    {"bias", AttrType::kI64, int64_t{0}, "1: operand 2 is a bias [C]"},
    {"activation", AttrType::kString, std::string(), "applied last: silu; empty: none"},
};

int bias_count(Attrs attrs) { return attr_i64(attrs, "bias") == 1 ? 1 : 0; }
bool has_activation(Attrs attrs) { return !attr_string(attrs, "activation").empty(); }

Status check_conv_attrs(std::string_view op, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_flag(op, attrs, "bias"));
  const std::string& activation = attr_string(attrs, "activation");
  if (activation.empty() || activation == "silu") return {};
  return Status(StatusCode::kInvalidArgument,
                format("{}: activation is '{}', wanted '' or 'silu'; emit another one as its own op", op, activation));
}

// x [B, T, C], w [C, K], bias [C] with attribute bias, from operand `first` on.
Status check_conv_operands(std::string_view op, Types in, Attrs attrs, int first) {
  TSR_RETURN_IF_ERROR(check_float(op, in, first, "x"));
  TSR_RETURN_IF_ERROR(check_rank(op, in, first, "x", 3));
  const TensorType& x = in[static_cast<size_t>(first)];
  TSR_RETURN_IF_ERROR(check_dtype(op, in, first + 1, "w", x.dtype));
  TSR_RETURN_IF_ERROR(check_rank(op, in, first + 1, "w", 2));
  TSR_RETURN_IF_ERROR(check_extent(op, in, first + 1, "w", 0, x.shape[2]));
  const TensorType& w = in[static_cast<size_t>(first) + 1];
  if (const int64_t taps = w.shape[1]; is_symbol(taps) || taps < 1 || taps > kMostTaps)
    return Status(StatusCode::kInvalidArgument,
                  format("{}: operand {} (w) is {}, wanted 1 to {} in dim 1", op, first + 1, w, kMostTaps));
  if (bias_count(attrs) == 0) return {};
  TSR_RETURN_IF_ERROR(check_dtype(op, in, first + 2, "bias", x.dtype));
  return check_shape(op, in, first + 2, "bias", Shape{x.shape[2]});
}

// The same with segments [B, T] last, optional: `operands` in all without them.
Status check_segmented_conv(std::string_view op, Types in, Attrs attrs, int first) {
  const int operands = first + 2 + bias_count(attrs);
  TSR_RETURN_IF_ERROR(check_count(op, in, operands, operands + 1));
  TSR_RETURN_IF_ERROR(check_conv_operands(op, in, attrs, first));
  const Shape& x = in[static_cast<size_t>(first)].shape;
  if (static_cast<int>(in.size()) == operands) return {};
  return check_indices(op, in, operands, "segments", Shape{x[0], x[1]});
}

// Multiply-adds of all taps, and an activation.
double conv_flops(const OpView& view, const Shape& x, const Shape& w) {
  return static_cast<double>(x.elements()) *
         (2.0 * static_cast<double>(w[1]) + (has_activation(view.attrs) ? 5 : 0));
}

}  // namespace

// causal_conv(x, w, bias, segments): with zeros before the sequence,
//   y[b, t, c] = act(bias[c] + sum_j w[c, j] * x[b, t - K + 1 + j, c])
//   x [B, T, C], w [C, K] with K <= 8, bias [C] with attribute bias, segments [B, T] i32 optional -> y [B, T, C].
//   Inputs of another segment than the token's own count as zero, which keeps packed documents apart.
namespace causal_conv {

constexpr std::string_view kName = "causal_conv";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_conv_attrs(kName, attrs));
  TSR_RETURN_IF_ERROR(check_segmented_conv(kName, in, attrs, 0));
  return std::vector<TensorType>{in[0]};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  std::vector<TensorId> operands = {*dy};
  for (int i = 0; i < b.input_count(); ++i) operands.push_back(b.input(i));
  TSR_ASSIGN_OR_RETURN(const auto grads,
                       b.emit_all("causal_conv_grad", operands, {b.attrs().begin(), b.attrs().end()}));
  for (int i = 0; i < 2 + bias_count(b.attrs()); ++i)
    if (b.needs_grad(i)) TSR_RETURN_IF_ERROR(b.set_input_grad(i, grads[static_cast<size_t>(i)]));
  return {};
}

ShardingRule sharding(const OpView& view) {
  const bool biased = bias_count(view.attrs) == 1;
  const bool segmented = static_cast<int>(view.inputs.size()) > 2 + bias_count(view.attrs);
  LinearSets linear;
  if (!has_activation(view.attrs)) linear = biased ? LinearSets{{0, 2}, {1, 2}} : LinearSets{{0}, {1}};
  return make_rule(format("btc,ck{}{}->btc", biased ? ",c" : "", segmented ? ",bt" : ""), std::move(linear), "tk");
}

OpCost cost(const OpView& view) {
  return traffic_cost(view, conv_flops(view, view.inputs[0].shape, view.inputs[1].shape));
}

// The last inputs of each sequence are state.
Status serve(ServingBuilder& b) {
  const TensorType &x = b.input_type(0), &w = b.input_type(1);
  TSR_ASSIGN_OR_RETURN(const TensorId state,
                       b.add_row_state("conv_rows", {statistics_dtype(x.dtype), {w.shape[1] - 1, w.shape[0]}}));
  std::vector<TensorId> operands = {state, b.input(0), b.input(1)};
  if (bias_count(b.attrs()) == 1) operands.push_back(b.input(2));
  operands.insert(operands.end(), {b.row(), b.position()});
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> results,
                       b.emit("causal_conv_rows", operands, {b.attrs().begin(), b.attrs().end()}));
  b.set_output(0, results[0]);
  b.set_row_state(state, results[1]);
  return {};
}

}  // namespace causal_conv

extern const OpDef kCausalConv = {
    .name = causal_conv::kName,
    .attrs = kConvAttrs,
    .infer = causal_conv::infer,
    .vjp = causal_conv::vjp,
    .sharding = causal_conv::sharding,
    .cost = causal_conv::cost,
    .weight = {.operand = 1},
    .context = {.mixes_tokens = true, .segments = 2, .segment_count = 1},
    .serve = causal_conv::serve,
};

// causal_conv_grad(dy, x, w, bias, segments): with the value z before the activation made again, and g = dy * act'(z),
//   dx[b, t, c] = sum_j w[c, K - 1 - j] * g[b, t + j, c],   dw[c, j] = sum_{b, t} g[b, t, c] * x[b, t - K + 1 + j, c],
//   dbias[c] = sum_{b, t} g[b, t, c]
//   -> dx [B, T, C], dw [C, K], dbias [C] with attribute bias.  Linear in dy.
namespace causal_conv_grad {

constexpr std::string_view kName = "causal_conv_grad";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_conv_attrs(kName, attrs));
  TSR_RETURN_IF_ERROR(check_segmented_conv(kName, in, attrs, 1));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 0, 1));
  std::vector<TensorType> results = {in[1], in[2]};
  if (bias_count(attrs) == 1) results.push_back(in[3]);
  return results;
}

ShardingRule sharding(const OpView& view) {
  const std::string_view bias = bias_count(view.attrs) == 1 ? ",c" : "";
  const bool segmented = static_cast<int>(view.inputs.size()) > 3 + bias_count(view.attrs);
  ShardingRule rule =
      make_rule(format("btc,btc,ck{}{}->btc,ck{}", bias, segmented ? ",bt" : "", bias), {{0}}, "tk");
  reduce_too(rule, "b");
  return rule;
}

// The values before the activation, and both gradients.
OpCost cost(const OpView& view) {
  return traffic_cost(view, 3 * conv_flops(view, view.inputs[1].shape, view.inputs[2].shape));
}

}  // namespace causal_conv_grad

extern const OpDef kCausalConvGrad = {.name = causal_conv_grad::kName,
                                      .attrs = kConvAttrs,
                                      .infer = causal_conv_grad::infer,
                                      .sharding = causal_conv_grad::sharding,
                                      .cost = causal_conv_grad::cost};

// causal_conv_rows(state, x, w, bias, row, position): causal_conv in a step whose tokens belong to many sequences. Token
// (b, n) stands at position[b, n] of sequence row[b, n]; tokens of one sequence come in the order of their positions. A row's
// state is its last K - 1 inputs, before the convolution; a token at position 0 starts from zeros, whatever the state holds.
// Tokens whose row is none of the R give 0 and write nothing.
//   state [R, K - 1, C] f32 (f64 for x in f64), x [B, N, C], w [C, K], bias [C] with attribute bias, row, position [B, N] i32
//   -> y [B, N, C], state in place.  For serving: no gradient.
namespace causal_conv_rows {

constexpr std::string_view kName = "causal_conv_rows";
const int kInPlace[] = {-1, 0};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_conv_attrs(kName, attrs));
  const int row = 3 + bias_count(attrs);
  TSR_RETURN_IF_ERROR(check_count(kName, in, row + 2));
  TSR_RETURN_IF_ERROR(check_conv_operands(kName, in, attrs, 1));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 0, "state", statistics_dtype(in[1].dtype)));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "state", 3));
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 0, "state", 1, in[2].shape[1] - 1));
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 0, "state", 2, in[1].shape[2]));
  const Shape tokens{in[1].shape[0], in[1].shape[1]};
  TSR_RETURN_IF_ERROR(check_indices(kName, in, row, "row", tokens));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, row + 1, "position", tokens));
  return std::vector<TensorType>{in[1], in[0]};
}

ShardingRule sharding(const OpView& view) {
  return make_rule(format("rmc,btc,ck{},bt,bt->btc,rmc", bias_count(view.attrs) == 1 ? ",c" : ""), {}, "rmkbt");
}

// In place: a step moves the state of no more rows than it has tokens.
OpCost cost(const OpView& view) {
  const Shape &state = view.inputs[0].shape, &x = view.inputs[1].shape;
  const double idle = static_cast<double>(std::max<int64_t>(state[0] - x[0] * x[1], 0)) *
                      static_cast<double>(dtype_bytes(view.inputs[0].dtype, state[1] * state[2]));
  OpCost cost = traffic_cost(view, conv_flops(view, x, view.inputs[2].shape));
  cost.bytes_read -= idle;
  cost.bytes_written -= idle;
  return cost;
}

}  // namespace causal_conv_rows

extern const OpDef kCausalConvRows = {.name = causal_conv_rows::kName,
                                      .attrs = kConvAttrs,
                                      .infer = causal_conv_rows::infer,
                                      .sharding = causal_conv_rows::sharding,
                                      .cost = causal_conv_rows::cost,
                                      .in_place = causal_conv_rows::kInPlace,
                                      .weight = {.operand = 2},
                                      .row_state = 0};

}  // namespace tessera
