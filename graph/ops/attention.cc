// Scaled dot-product attention without a T x S matrix in memory (Dao et al., 2022) and its gradient.
#include "graph/base/text.h"
#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

// attention(q, k, v): with the scores s[b, t, h, j] = scale * q[b, t, h, :] . k[b, j, h / G, :], G = H / KV,
// over the keys j that t sees (all; causal: j <= the global position of t),
//   out[b, t, h, :] = sum_j softmax_j(s) * v[b, j, h / G, :],   lse[b, t, h] = log sum_j exp(s)
//   q [B, T, H, D], k, v [B, S, KV, D] -> out [B, T, H, D], lse [B, T, H] (kept for the backward pass; f64 in
//   an f64 graph, else f32).  T and S may differ.  A query that sees no key gives out 0 and lse -inf.
namespace attention {

constexpr std::string_view kName = "attention";
const AttrSpec kAttrs[] = {
    {"causal", AttrType::kI64, int64_t{1}, "1: a query sees the keys up to its own position; 0: all"},
    {"scale", AttrType::kF64, 0.0, "factor of the scores; 0: 1/sqrt(D)"},
};

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3));
  TSR_RETURN_IF_ERROR(check_attention_operands(kName, in, 0, 1, 2));
  return std::vector<TensorType>{in[0], {statistics_dtype(in[0].dtype), without_last(in[0].shape)}};
}

Status vjp(VjpBuilder& b) {
  TSR_RETURN_IF_ERROR(check_not_differentiated(b, kName, 1, "lse"));
  const auto dout = b.output_grad(0);
  if (!dout) return {};
  const TensorId operands[] = {*dout, b.input(0), b.input(1), b.input(2), b.output(0), b.output(1)};
  TSR_ASSIGN_OR_RETURN(const auto grads,
                       b.emit_all("attention_grad", operands, {b.attrs().begin(), b.attrs().end()}));
  for (int i : {0, 1, 2})
    if (b.needs_grad(i)) TSR_RETURN_IF_ERROR(b.set_input_grad(i, grads[static_cast<size_t>(i)]));
  return {};
}

// g may be sharded in addition to k: the queries of a KV head are split, its keys and values replicated
// (ALGEBRA rule 4).
ShardingRule sharding(const OpView& view) {
  ShardingRule rule = make_rule("bt(kg)d,bskd,bskd->bt(kg)d,bt(kg)", {}, "sd");
  if (attr_i64(view.attrs, "causal") != 0) rule.order = {'t', 's'};
  return rule;
}

// Two products of D multiply-adds for every query and key that it sees; the exponentials are negligible.
OpCost cost(const OpView& view) {
  return traffic_cost(view, 4.0 * visible_pairs(view, view.inputs[0].shape, view.inputs[1].shape) *
                                static_cast<double>(view.inputs[0].shape[3]));
}

}  // namespace attention

extern const OpDef kAttention = {.name = attention::kName,
                                 .attrs = attention::kAttrs,
                                 .infer = attention::infer,
                                 .vjp = attention::vjp,
                                 .sharding = attention::sharding,
                                 .cost = attention::cost,
                                 .chunk_merge = "attention_merge"};

// attention_merge(out_a, lse_a, out_b, lse_b): attention over two disjoint sets of keys, from attention over
// each:
//   lse = log(exp(lse_a) + exp(lse_b)),   out = exp(lse_a - lse) * out_a + exp(lse_b - lse) * out_b
//   out_a, out_b [B, T, H, D], lse_a, lse_b [B, T, H] -> out, lse.  -inf stands for no keys.
// Made by lowering when keys come in slices: no gradient.
namespace attention_merge {

constexpr std::string_view kName = "attention_merge";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "out_a"));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "out_a", 4));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 1, "lse_a", in[0]));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 2, 0));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 3, 1));
  return std::vector<TensorType>{in[0], in[1]};
}

ShardingRule sharding(const OpView&) { return make_rule("bthd,bth,bthd,bth->bthd,bth"); }

OpCost cost(const OpView& view) { return elementwise_cost(view, 3); }

}  // namespace attention_merge

constexpr int kMergeInPlace[] = {0, 1};
extern const OpDef kAttentionMerge = {.name = attention_merge::kName,
                                      .infer = attention_merge::infer,
                                      .sharding = attention_merge::sharding,
                                      .cost = attention_merge::cost,
                                      .in_place = kMergeInPlace};

// With p = exp(s - lse), delta = rowsum(dout * out), ds = p * (dout . v - delta), sums over the pairs that
// see each other:
//   dq[t] = scale * sum_j ds * k[j],   dk[j] = scale * sum_{t, g} ds * q[t],   dv[j] = sum_{t, g} p * dout[t]
//   dout, q [B, T, H, D], k, v [B, S, KV, D], out [B, T, H, D], lse [B, T, H]
//   -> dq [B, T, H, D], dk, dv [B, S, KV, D].  With t or g sharded, dq is sharded and dk and dv are
//   partial.
namespace attention_grad {

constexpr std::string_view kName = "attention_grad";

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 6));
  TSR_RETURN_IF_ERROR(check_attention_operands(kName, in, 1, 2, 3));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 0, 1));
  TSR_RETURN_IF_ERROR(check_same_type(kName, in, 4, 1));
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 5, "lse", in[1]));
  return std::vector<TensorType>{in[1], in[2], in[3]};
}

ShardingRule sharding(const OpView& view) {
  ShardingRule rule = make_rule("bt(kg)d,bt(kg)d,bskd,bskd,bt(kg)d,bt(kg)->bt(kg)d,bskd,bskd", {}, "sd");
  rule.find('t')->kind = rule.find('g')->kind = FactorKind::kReduce;
  if (attr_i64(view.attrs, "causal") != 0) rule.order = {'t', 's'};
  return rule;
}

// Five products for every pair: the recomputed scores, dout . v, and the three gradients.
OpCost cost(const OpView& view) {
  return traffic_cost(view, 10.0 * visible_pairs(view, view.inputs[1].shape, view.inputs[2].shape) *
                                static_cast<double>(view.inputs[1].shape[3]));
}

}  // namespace attention_grad

extern const OpDef kAttentionGrad = {.name = attention_grad::kName,
                                     .attrs = attention::kAttrs,
                                     .infer = attention_grad::infer,
                                     .sharding = attention_grad::sharding,
                                     .cost = attention_grad::cost};

// attention_cached(q, k_cache, v_cache, start): causal attention over a cache. Query i of sequence b is at
// position start[b] + i and sees the cached positions up to it; a query at a negative position sees none and
// gives 0.
//   q [B, T, H, D], k_cache, v_cache [B, S, KV, D], start [B] i32 -> out [B, T, H, D].  For decoding: no
//   gradient.
namespace attention_cached {

constexpr std::string_view kName = "attention_cached";
const AttrSpec kAttrs[] = {{"scale", AttrType::kF64, 0.0, "factor of the scores; 0: 1/sqrt(D)"}};

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4));
  TSR_RETURN_IF_ERROR(check_attention_operands(kName, in, 0, 1, 2));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 3, "start", Shape{in[0].shape[0]}));
  return std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView&) { return make_rule("bt(kg)d,bskd,bskd,b->bt(kg)d", {}, "sd"); }

// The fill of the cache is not known here: all of it is counted.
OpCost cost(const OpView& view) {
  return traffic_cost(view, 4.0 * static_cast<double>(view.inputs[0].shape.elements()) *
                                static_cast<double>(view.inputs[1].shape[1]));
}

}  // namespace attention_cached

extern const OpDef kAttentionCached = {.name = attention_cached::kName,
                                       .attrs = attention_cached::kAttrs,
                                       .infer = attention_cached::infer,
                                       .sharding = attention_cached::sharding,
                                       .cost = attention_cached::cost};

}  // namespace tessera
