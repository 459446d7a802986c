// Scans with a state of each channel by itself: the selective scan of Mamba (Gu and Dao, 2023), and gated linear recurrences
// such as RG-LRU (De et al., 2024).
#include <algorithm>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "graph/ops/op_support.h"
#include "graph/serving_builder.h"

namespace tessera {

using namespace ops;

namespace {

const AttrSpec kSelectiveAttrs[] = {
    {"expand", AttrType::kI64, int64_t{1}, "1: operands rate, b, c give each channel N numbers of state; 0: one, without them"},
};

bool expands(Attrs attrs) { return attr_i64(attrs, "expand") == 1; }
int operand_count(Attrs attrs) { return expands(attrs) ? 5 : 2; }

// x [B, T, C], step [B, T, C], and with attribute expand rate [C, N], b, c [B, T, N], from operand `first` on. `behind` others
// follow.
Status check_operands(std::string_view op, Types in, Attrs attrs, int first, int behind) {
  TSR_RETURN_IF_ERROR(check_flag(op, attrs, "expand"));
  TSR_RETURN_IF_ERROR(check_count(op, in, first + operand_count(attrs) + behind));
  TSR_RETURN_IF_ERROR(check_float(op, in, first, "x"));
  TSR_RETURN_IF_ERROR(check_rank(op, in, first, "x", 3));
  const TensorType& x = in[static_cast<size_t>(first)];
  const std::string_view step = expands(attrs) ? "step" : "log_decay";
  TSR_RETURN_IF_ERROR(check_dtype(op, in, first + 1, step, statistics_dtype(x.dtype)));
  TSR_RETURN_IF_ERROR(check_shape(op, in, first + 1, step, x.shape));
  if (!expands(attrs)) return {};
  TSR_RETURN_IF_ERROR(check_dtype(op, in, first + 2, "rate", statistics_dtype(x.dtype)));
  TSR_RETURN_IF_ERROR(check_rank(op, in, first + 2, "rate", 2));
  TSR_RETURN_IF_ERROR(check_extent(op, in, first + 2, "rate", 0, x.shape[2]));
  const Shape by_token = with_last(without_last(x.shape), in[static_cast<size_t>(first) + 2].shape[1]);
  for (const auto& [i, name] : {std::pair(first + 3, "b"), std::pair(first + 4, "c")}) {
    TSR_RETURN_IF_ERROR(check_dtype(op, in, i, name, x.dtype));
    TSR_RETURN_IF_ERROR(check_shape(op, in, i, name, by_token));
  }
  return {};
}

// The same with segments [B, T] last, optional.
Status check_segmented(std::string_view op, Types in, Attrs attrs, int first) {
  const int segments = first + operand_count(attrs);
  const bool has_segments = static_cast<int>(in.size()) == segments + 1;
  TSR_RETURN_IF_ERROR(check_operands(op, in, attrs, first, has_segments ? 1 : 0));
  if (!has_segments) return {};
  const Shape& x = in[static_cast<size_t>(first)].shape;
  return check_indices(op, in, segments, "segments", Shape{x[0], x[1]});
}

std::string_view operands_rule(Attrs attrs) { return expands(attrs) ? "btc,btc,cn,btn,btn" : "btc,btc"; }

std::string_view segments_rule(const OpView& view, int first) {
  return static_cast<int>(view.inputs.size()) > first + operand_count(view.attrs) ? ",bt" : "";
}

// Flops of the numbers of all tokens' states: a decay of 9 with its exponential, the update, the result.
double scan_flops(const OpView& view, int first) {
  const auto x = static_cast<double>(view.inputs[static_cast<size_t>(first)].shape.elements());
  if (!expands(view.attrs)) return 10 * x;
  return 14 * x * static_cast<double>(view.inputs[static_cast<size_t>(first) + 2].shape[1]);
}

}  // namespace

// selective_scan(x, step, rate, b, c, segments): each channel has a state S [N], zero before the first token of a segment;
// token by token
//   S[n] <- exp(step * rate[n]) S[n] + step * x * b[n];   y = sum_n c[n] * S[n]
//   x, step [B, T, C], rate [C, N], b, c [B, T, N], segments [B, T] i32 optional -> y [B, T, C].
// With expand = 0 the operands are x, log_decay [B, T, C] and segments, and
//   S <- exp(log_decay) S + x;   y = S
// step, log_decay, rate and the state are f32 (f64 in an f64 graph).
namespace selective_scan {

constexpr std::string_view kName = "selective_scan";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_segmented(kName, in, attrs, 0));
  return std::vector<TensorType>{in[0]};
}

Status vjp(VjpBuilder& b) {
  const auto dy = b.output_grad(0);
  if (!dy) return {};
  std::vector<TensorId> operands = {*dy};
  for (int i = 0; i < b.input_count(); ++i) operands.push_back(b.input(i));
  TSR_ASSIGN_OR_RETURN(const auto grads,
                       b.emit_all("selective_scan_grad", operands, {b.attrs().begin(), b.attrs().end()}));
  for (int i = 0; i < operand_count(b.attrs()); ++i)
    if (b.needs_grad(i)) TSR_RETURN_IF_ERROR(b.set_input_grad(i, grads[static_cast<size_t>(i)]));
  return {};
}

// Numbers of a state are independent: n may be sharded, and y is then a sum.
ShardingRule sharding(const OpView& view) {
  const LinearSets linear = expands(view.attrs) ? LinearSets{{0}, {3}, {4}} : LinearSets{{0}};
  return make_rule(format("{}{}->btc", operands_rule(view.attrs), segments_rule(view, 0)), linear, "t");
}

OpCost cost(const OpView& view) { return traffic_cost(view, scan_flops(view, 0)); }

Status serve(ServingBuilder& b) {
  const TensorType& x = b.input_type(0);
  const int64_t N = expands(b.attrs()) ? b.input_type(2).shape[1] : 1;
  TSR_ASSIGN_OR_RETURN(const TensorId state,
                       b.add_row_state("scan_rows", {statistics_dtype(x.dtype), {N, x.shape[2]}}));
  std::vector<TensorId> operands = {state};
  for (int i = 0; i < operand_count(b.attrs()); ++i) operands.push_back(b.input(i));
  operands.insert(operands.end(), {b.row(), b.position()});
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> results,
                       b.emit("selective_scan_rows", operands, {b.attrs().begin(), b.attrs().end()}));
  b.set_output(0, results[0]);
  b.set_row_state(state, results[1]);
  return {};
}

int added_operands(Attrs attrs) { return operand_count(attrs) - 2; }

}  // namespace selective_scan

extern const OpDef kSelectiveScan = {
    .name = selective_scan::kName,
    .attrs = kSelectiveAttrs,
    .infer = selective_scan::infer,
    .vjp = selective_scan::vjp,
    .sharding = selective_scan::sharding,
    .cost = selective_scan::cost,
    .context = {.mixes_tokens = true,
                .segments = 2,
                .segment_count = 1,
                .added_operands = selective_scan::added_operands},
    .serve = selective_scan::serve,
};

// selective_scan_grad(dy, x, step, rate, b, c, segments): the scan is run again, then backwards, with P the state before a token,
// w = exp(step * rate), u = step * x, and dS carried from the last token to the first:
//   dS += c dy;   dc = sum_c dy * S;   db = sum_c dS * u;   du = sum_n dS * b;   e = dS * w * P;   drate = sum_bt e * step
//   dx = du * step;   dstep = du * x + sum_n e * rate;   dS <- w dS
//   -> dx, dstep, drate, db, dc, as the operands.  With expand = 0 dx = dS and dlog_decay = e.  Linear in dy.
namespace selective_scan_grad {

constexpr std::string_view kName = "selective_scan_grad";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_segmented(kName, in, attrs, 1));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 0, 1));
  return std::vector<TensorType>{in.begin() + 1, in.begin() + 1 + operand_count(attrs)};
}

ShardingRule sharding(const OpView& view) {
  const std::string_view operands = operands_rule(view.attrs);
  ShardingRule rule =
      make_rule(format("btc,{}{}->{}", operands, segments_rule(view, 1), operands), {{0}}, "t");
  if (expands(view.attrs)) reduce_too(rule, "bcn");
  return rule;
}

// The scan once for the states between chunks and once within them, then nine products or sums with the state.
OpCost cost(const OpView& view) { return traffic_cost(view, 3 * scan_flops(view, 1)); }

}  // namespace selective_scan_grad

extern const OpDef kSelectiveScanGrad = {.name = selective_scan_grad::kName,
                                         .attrs = kSelectiveAttrs,
                                         .infer = selective_scan_grad::infer,
                                         .sharding = selective_scan_grad::sharding,
                                         .cost = selective_scan_grad::cost};

// selective_scan_rows(state, x, step, rate, b, c, row, position): selective_scan in a step whose tokens belong to many sequences,
// as in causal_conv_rows: a token at position 0 starts from zeros, and those of no row give 0 and write nothing.
//   state [R, N, C] f32 (f64 for x in f64), N = 1 with expand = 0; x [B, M, C], the others as of selective_scan, row,
//   position [B, M] i32 -> y [B, M, C], state in place.  For serving: no gradient.
namespace selective_scan_rows {

constexpr std::string_view kName = "selective_scan_rows";
const int kInPlace[] = {-1, 0};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_operands(kName, in, attrs, 1, 2));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 0, "state", statistics_dtype(in[1].dtype)));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "state", 3));
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 0, "state", 1, expands(attrs) ? in[3].shape[1] : 1));
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 0, "state", 2, in[1].shape[2]));
  const Shape tokens{in[1].shape[0], in[1].shape[1]};
  const int row = 1 + operand_count(attrs);
  TSR_RETURN_IF_ERROR(check_indices(kName, in, row, "row", tokens));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, row + 1, "position", tokens));
  return std::vector<TensorType>{in[1], in[0]};
}

ShardingRule sharding(const OpView& view) {
  return make_rule(format("snc,{},bt,bt->btc,snc", operands_rule(view.attrs)), {}, "snbt");
}

// In place: a step moves the state of no more rows than it has tokens.
OpCost cost(const OpView& view) {
  const TensorType& state = view.inputs[0];
  const Shape& x = view.inputs[1].shape;
  const double idle = static_cast<double>(std::max<int64_t>(state.shape[0] - x[0] * x[1], 0)) *
                      static_cast<double>(dtype_bytes(state.dtype, state.shape[1] * state.shape[2]));
  OpCost cost = traffic_cost(view, scan_flops(view, 1));
  cost.bytes_read -= idle;
  cost.bytes_written -= idle;
  return cost;
}

}  // namespace selective_scan_rows

extern const OpDef kSelectiveScanRows = {.name = selective_scan_rows::kName,
                                         .attrs = kSelectiveAttrs,
                                         .infer = selective_scan_rows::infer,
                                         .sharding = selective_scan_rows::sharding,
                                         .cost = selective_scan_rows::cost,
                                         .in_place = selective_scan_rows::kInPlace,
                                         .row_state = 0};

}  // namespace tessera
