// Linear attention with a state of fixed size for each head: the gated delta rule (Yang et al., 2025), the state-space dual of
// Mamba-2 (Dao and Gu, 2024), and the generalized delta rule of RWKV-7 (Peng et al., 2025).
#include <algorithm>

#include "graph/base/text.h"
#include "graph/ops/state_scan_support.h"
#include "graph/serving_builder.h"

namespace tessera {

using namespace ops;

namespace ops {

const AttrSpec kScanAttrs[2] = {
    {"rule", AttrType::kString, std::string("delta"),
     "delta: the state is corrected towards v; add: v is added to it; general: operands a, b correct it"},
    {"scale", AttrType::kF64, 0.0, "factor of q; 0: 1/sqrt(K)"},
};

namespace {
const TensorType& operand(Types inputs, int first, int i) { return inputs[static_cast<size_t>(first + i)]; }
bool decays_by_channel(Types inputs, int first) { return operand(inputs, first, 3).shape.rank() == 4; }
bool is_general(Attrs attrs) { return attr_string(attrs, "rule") == "general"; }
}  // namespace

int scan_operand_count(Attrs attrs) { return is_general(attrs) ? 6 : 5; }

Status check_scan_operands(std::string_view op, Types inputs, Attrs attrs, int first, int behind) {
  const std::string& rule = attr_string(attrs, "rule");
  if (rule != "delta" && rule != "add" && rule != "general")
    return Status(StatusCode::kInvalidArgument,
                  format("{}: rule is '{}', wanted 'delta', 'add' or 'general'", op, rule));
  TSR_RETURN_IF_ERROR(check_count(op, inputs, first + scan_operand_count(attrs) + behind));
  const int q = first, k = first + 1, v = first + 2, log_decay = first + 3, beta = first + 4;
  TSR_RETURN_IF_ERROR(check_float(op, inputs, q, "q"));
  TSR_RETURN_IF_ERROR(check_rank(op, inputs, q, "q", 4));
  TSR_RETURN_IF_ERROR(check_same_type(op, inputs, k, q));
  const TensorType &query = operand(inputs, first, 0), &value = operand(inputs, first, 2);
  TSR_RETURN_IF_ERROR(check_dtype(op, inputs, v, "v", query.dtype));
  TSR_RETURN_IF_ERROR(check_rank(op, inputs, v, "v", 4));
  for (const int dim : {0, 1}) TSR_RETURN_IF_ERROR(check_extent(op, inputs, v, "v", dim, query.shape[dim]));
  const int64_t heads = value.shape[2], key_heads = query.shape[2];
  const bool symbolic = is_symbol(heads) || is_symbol(key_heads);
  const bool divides = key_heads > 0 ? heads % key_heads == 0 : heads == 0;
  if (heads != key_heads && (symbolic || !divides))
    return Status(StatusCode::kInvalidArgument,
                  format("{}: v {} must have a multiple of the heads (dim 2) of q {}", op, value, query));
  const Shape per_head = without_last(value.shape);
  const DType wide = statistics_dtype(query.dtype);
  TSR_RETURN_IF_ERROR(check_dtype(op, inputs, log_decay, "log_decay", wide));
  TSR_RETURN_IF_ERROR(check_shape(op, inputs, log_decay, "log_decay",
                                  decays_by_channel(inputs, first) ? with_last(per_head, query.shape[3]) : per_head));
  if (is_general(attrs)) {
    TSR_RETURN_IF_ERROR(check_same_type(op, inputs, first + 4, q));
    return check_same_type(op, inputs, first + 5, q);
  }
  if (operand(inputs, first, 4).dtype != query.dtype)
    TSR_RETURN_IF_ERROR(check_dtype(op, inputs, beta, "beta", wide));
  return check_shape(op, inputs, beta, "beta", per_head);
}

Status check_segmented_scan(std::string_view op, Types inputs, Attrs attrs, int first) {
  const int segments = first + scan_operand_count(attrs);
  const bool has_segments = static_cast<int>(inputs.size()) == segments + 1;
  TSR_RETURN_IF_ERROR(check_scan_operands(op, inputs, attrs, first, has_segments ? 1 : 0));
  if (!has_segments) return {};
  const Shape& q = operand(inputs, first, 0).shape;
  return check_indices(op, inputs, segments, "segments", Shape{q[0], q[1]});
}

std::string scan_operands_rule(Types inputs, Attrs attrs, int first) {
  return format("btgk,btgk,bt(gr)v,bt(gr){},{}", decays_by_channel(inputs, first) ? "k" : "",
                is_general(attrs) ? "btgk,btgk" : "bt(gr)");
}

double scan_state_elements(Types inputs, int first) {
  return static_cast<double>(operand(inputs, first, 2).shape.elements()) *
         static_cast<double>(operand(inputs, first, 0).shape[3]);
}

double scan_flops(Types inputs, Attrs attrs, int first) {
  const double flops = is_general(attrs) ? 9 : attr_string(attrs, "rule") == "delta" ? 7 : 5;
  return scan_state_elements(inputs, first) * flops;
}

}  // namespace ops

// state_scan(q, k, v, log_decay, beta, segments): for each value head, whose key head is j / (H / G), a state S [K, V],
// zero before the first token of a segment; token by token
//   S <- diag(exp(log_decay)) S;   d = beta * (v - S^T k), with rule "add" beta * v;   S <- S + k d^T;   o = scale * S^T q
//   q, k [B, T, G, K], v [B, T, H, V], log_decay [B, T, H] or by channel [B, T, H, K], beta [B, T, H], segments [B, T] i32
//   optional -> o [B, T, H, V].  log_decay and the state are f32 (f64 in an f64 graph); beta has their type or q's.
// Rule "general" has a, b [B, T, G, K] as operands 4 and 5 in place of beta, and reads the state as it was before the decay:
//   S <- diag(exp(log_decay)) S + b (S^T a)^T + k v^T.   With a = -exp(log_decay) * k, b = beta * k and beta * k for k this is
//   the delta rule.
namespace state_scan {

constexpr std::string_view kName = "state_scan";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_segmented_scan(kName, in, attrs, 0));
  return std::vector<TensorType>{in[2]};
}

Status vjp(VjpBuilder& b) {
  const auto dout = b.output_grad(0);
  if (!dout) return {};
  std::vector<TensorId> operands = {*dout};
  for (int i = 0; i < b.input_count(); ++i) operands.push_back(b.input(i));
  TSR_ASSIGN_OR_RETURN(const auto grads,
                       b.emit_all("state_scan_grad", operands, {b.attrs().begin(), b.attrs().end()}));
  for (int i = 0; i < scan_operand_count(b.attrs()); ++i)
    if (b.needs_grad(i)) TSR_RETURN_IF_ERROR(b.set_input_grad(i, grads[static_cast<size_t>(i)]));
  return {};
}

// Columns of the state are independent: v may be sharded.
ShardingRule sharding(const OpView& view) {
  const std::string operands = scan_operands_rule(view.inputs, view.attrs, 0);
  const bool has_segments = static_cast<int>(view.inputs.size()) > scan_operand_count(view.attrs);
  const std::string_view segments = has_segments ? ",bt" : "";
  LinearSets linear = {{0}, {2}};
  if (attr_string(view.attrs, "rule") != "delta") linear.push_back({1});
  if (attr_string(view.attrs, "rule") == "add") linear.push_back({4});
  return make_rule(format("{}{}->bt(gr)v", operands, segments), std::move(linear), "tk");
}

OpCost cost(const OpView& view) { return traffic_cost(view, scan_flops(view.inputs, view.attrs, 0)); }

Status serve(ServingBuilder& b) {
  const TensorType &q = b.input_type(0), &v = b.input_type(2);
  TSR_ASSIGN_OR_RETURN(
      const TensorId state,
      b.add_row_state("scan_rows", {statistics_dtype(q.dtype), {v.shape[2], q.shape[3], v.shape[3]}}));
  std::vector<TensorId> operands = {state};
  for (int i = 0; i < scan_operand_count(b.attrs()); ++i) operands.push_back(b.input(i));
  operands.insert(operands.end(), {b.row(), b.position()});
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> results,
                       b.emit("state_scan_rows", operands, {b.attrs().begin(), b.attrs().end()}));
  b.set_output(0, results[0]);
  b.set_row_state(state, results[1]);
  return {};
}

int added_operands(Attrs attrs) { return scan_operand_count(attrs) - 5; }

}  // namespace state_scan

extern const OpDef kStateScan = {
    .name = state_scan::kName,
    .attrs = kScanAttrs,
    .infer = state_scan::infer,
    .vjp = state_scan::vjp,
    .sharding = state_scan::sharding,
    .cost = state_scan::cost,
    .context = {.mixes_tokens = true, .segments = 5, .segment_count = 1, .added_operands = state_scan::added_operands},
    .serve = state_scan::serve,
};

// state_scan_grad(dout, q, k, v, log_decay, beta, segments): the scan is run again, then backwards, with P the state after
// decay, u = v - P^T k (with rule "add" v) and dS carried from the last token to the first:
//   dS += scale * q dout^T;   dq = scale * S dout;   e = dS^T k;   dk = beta * dS u - P dv;   dbeta = u . e;   dv = beta * e
//   dP = dS - k dv^T;   dlog_decay = rowsum(dP * P), summed over channels where the decay is one for all;
//   dS <- diag(exp(log_decay)) dP.   With rule "add" the terms of dv in dk and dP are absent.
// With rule "general", r = S^T a of the state S before decay and dP = dS:
//   dk = dS v;   dv = dS^T k;   db = dS r;   e = dS^T b;   da = S e;   dS <- diag(exp(log_decay)) dS + a e^T.
//   dout as o, the operands as of state_scan -> dq, dk, dv, dlog_decay, then dbeta or da, db, as the operands.  Linear in dout.
namespace state_scan_grad {

constexpr std::string_view kName = "state_scan_grad";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_segmented_scan(kName, in, attrs, 1));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 0, 3));
  return std::vector<TensorType>{in.begin() + 1, in.begin() + 1 + scan_operand_count(attrs)};
}

// dq, dk, da and db are sums over the value heads of a key head and over v, dlog_decay and dbeta over v.
ShardingRule sharding(const OpView& view) {
  const std::string operands = scan_operands_rule(view.inputs, view.attrs, 1);
  const bool has_segments = static_cast<int>(view.inputs.size()) > 1 + scan_operand_count(view.attrs);
  const std::string_view segments = has_segments ? ",bt" : "";
  ShardingRule rule = make_rule(format("bt(gr)v,{}{}->{}", operands, segments, operands), {{0}}, "tk");
  reduce_too(rule, "rv");
  return rule;
}

// The scan once for the states between chunks and once within them, then nine products or sums with the state; twelve where a
// and b have gradients.
OpCost cost(const OpView& view) {
  const double back = scan_operand_count(view.attrs) == 6 ? 21 : 15;
  return traffic_cost(view, 2 * scan_flops(view.inputs, view.attrs, 1) + back * scan_state_elements(view.inputs, 1));
}

}  // namespace state_scan_grad

extern const OpDef kStateScanGrad = {.name = state_scan_grad::kName,
                                     .attrs = kScanAttrs,
                                     .infer = state_scan_grad::infer,
                                     .sharding = state_scan_grad::sharding,
                                     .cost = state_scan_grad::cost};

// state_scan_rows(state, q, k, v, log_decay, beta or a, b, row, position): state_scan in a step whose tokens belong to many
// sequences, as in causal_conv_rows: a token at position 0 starts from zeros, and those of no row give 0 and write nothing.
//   state [R, H, K, V] f32 (f64 for q in f64), q, k [B, N, G, K], v [B, N, H, V], the others as of state_scan, row,
//   position [B, N] i32 -> o [B, N, H, V], state in place.  For serving: no gradient.
namespace state_scan_rows {

constexpr std::string_view kName = "state_scan_rows";
const int kInPlace[] = {-1, 0};

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_scan_operands(kName, in, attrs, 1, 2));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 0, "state", statistics_dtype(in[1].dtype)));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "state", 4));
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 0, "state", 1, in[3].shape[2]));
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 0, "state", 2, in[1].shape[3]));
  TSR_RETURN_IF_ERROR(check_extent(kName, in, 0, "state", 3, in[3].shape[3]));
  const Shape tokens{in[1].shape[0], in[1].shape[1]};
  const int row = 1 + scan_operand_count(attrs);
  TSR_RETURN_IF_ERROR(check_indices(kName, in, row, "row", tokens));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, row + 1, "position", tokens));
  return std::vector<TensorType>{in[3], in[0]};
}

ShardingRule sharding(const OpView& view) {
  const std::string operands = scan_operands_rule(view.inputs, view.attrs, 1);
  return make_rule(format("s(gr)kv,{},bt,bt->bt(gr)v,s(gr)kv", operands), {}, "skbt");
}

// In place: a step moves the state of no more rows than it has tokens.
OpCost cost(const OpView& view) {
  const TensorType& state = view.inputs[0];
  const Shape& q = view.inputs[1].shape;
  const double idle =
      static_cast<double>(std::max<int64_t>(state.shape[0] - q[0] * q[1], 0)) *
      static_cast<double>(dtype_bytes(state.dtype, state.shape[1] * state.shape[2] * state.shape[3]));
  OpCost cost = traffic_cost(view, scan_flops(view.inputs, view.attrs, 1));
  cost.bytes_read -= idle;
  cost.bytes_written -= idle;
  return cost;
}

}  // namespace state_scan_rows

extern const OpDef kStateScanRows = {.name = state_scan_rows::kName,
                                     .attrs = kScanAttrs,
                                     .infer = state_scan_rows::infer,
                                     .sharding = state_scan_rows::sharding,
                                     .cost = state_scan_rows::cost,
                                     .in_place = state_scan_rows::kInPlace,
                                     .row_state = 0};

}  // namespace tessera
