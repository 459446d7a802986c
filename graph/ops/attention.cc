// Scaled dot-product attention without a T x S matrix in memory (Dao et al., 2022).
#include <vector>

#include "graph/base/text.h"
#include "graph/ops/attention_support.h"
#include "graph/serving_builder.h"

namespace tessera {

using namespace ops;

// attention(q, k, v, q_segment, k_segment): with the scores s[b, t, h, j] = scale * q[b, t, h, :] . k[b, j, h / G, :],
// G = H / KV, capped by softcap, over the keys j that t sees,
//   out[b, t, h, :] = sum_j softmax_j(s) * v[b, j, h / G, :],   lse[b, t, h] = log sum_j exp(s)
//   q [B, T, H, D], k [B, S, KV, D], v [B, S, KV, V] -> out [B, T, H, V], lse [B, T, H] (f64 in an f64 graph, else
//   f32).  T and S may differ.  A query that sees no key gives out 0 and lse -inf.
//   q_segment [B, T], k_segment [B, S] i32, both or neither: a query sees keys with its own number alone, which keeps
//   packed documents apart and padding out.
// Further limits of a query's keys: graph/ops/attention_support.h.
namespace attention {

constexpr std::string_view kName = "attention";

Inferred infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 3, 5));
  TSR_RETURN_IF_ERROR(check_attention_operands(kName, in, attrs, 0, 1, 2));
  if (in.size() == 4)
    return Status(StatusCode::kInvalidArgument,
                  format("{}: 4 operands: q_segment without k_segment, wanted both or neither", kName));
  if (in.size() == 5) TSR_RETURN_IF_ERROR(check_segments(kName, in, 3, 0, 1));
  return std::vector<TensorType>{{in[0].dtype, attended_shape(in[0].shape, in[2].shape)},
                                 {statistics_dtype(in[0].dtype), without_last(in[0].shape)}};
}

Status vjp(VjpBuilder& b) {
  const auto dout = b.output_grad(0), dlse = b.output_grad(1);
  if (!dout && !dlse) return {};
  std::vector<TensorId> operands = {b.input(0), b.input(1), b.input(2), b.output(0), b.output(1)};
  if (dout) {
    operands.insert(operands.begin(), *dout);
  } else {
    TSR_ASSIGN_OR_RETURN(const TensorId none, b.emit("zeros_like", {b.output(0)}));
    operands.insert(operands.begin(), none);
  }
  for (int i = 3; i < b.input_count(); ++i) operands.push_back(b.input(i));
  if (dlse) operands.push_back(*dlse);
  TSR_ASSIGN_OR_RETURN(const auto grads,
                       b.emit_all("attention_grad", operands, {b.attrs().begin(), b.attrs().end()}));
  for (int i : {0, 1, 2})
    if (b.needs_grad(i)) TSR_RETURN_IF_ERROR(b.set_input_grad(i, grads[static_cast<size_t>(i)]));
  return {};
}

// g may be sharded in addition to k: the queries of a KV head are split, its keys and values replicated
// (ALGEBRA rule 4).
ShardingRule sharding(const OpView& view) {
  const bool has_segments = view.inputs.size() == 5;
  ShardingRule rule =
      attention_rule(std::string("bt(kg)d,bskd,bsk*") + (has_segments ? ",bt,bs" : "") + "->bt(kg)*,bt(kg)",
                     value_width(view.inputs[1].shape, view.inputs[2].shape));
  if (attr_i64(view.attrs, "causal") != 0) rule.order = {'t', 's'};
  return rule;
}

// D and V multiply-adds for every query and key that it sees; the exponentials are negligible.
OpCost cost(const OpView& view) {
  const Shape &q = view.inputs[0].shape, &k = view.inputs[1].shape, &v = view.inputs[2].shape;
  return traffic_cost(view,
                      2.0 * visible_pairs(view, q, k) * static_cast<double>(last_extent(q) + last_extent(v)));
}

// Keys and values of all tokens are in pages; a token's own are written first.
Status serve(ServingBuilder& b) {
  const int64_t window = attr_i64(b.attrs(), "window");
  TSR_ASSIGN_OR_RETURN(const TensorId keys, b.add_pages("k_pages", b.input(1), window, "keys"));
  TSR_ASSIGN_OR_RETURN(const TensorId values, b.add_pages("v_pages", b.input(2), window, "values"));
  TSR_ASSIGN_OR_RETURN(
      const std::vector<TensorId> results,
      b.emit("attention_paged", {b.input(0), keys, values, b.page_table(window), b.row(), b.position()},
             paged_attrs(b.attrs(), b.is_read(1))));
  for (size_t i = 0; i < results.size(); ++i) b.set_output(static_cast<int>(i), results[i]);
  return {};
}

}  // namespace attention

extern const OpDef kAttention = {
    .name = attention::kName,
    .attrs = kAttentionAttrs,
    .infer = attention::infer,
    .vjp = attention::vjp,
    .sharding = attention::sharding,
    .cost = attention::cost,
    .chunk_merge = "attention_merge",
    .context = {.mixes_tokens = true, .keys = 1, .values = 2, .segments = 3},
    .serve = attention::serve,
};

// attention_merge(out_a, lse_a, out_b, lse_b): attention over two disjoint sets of keys, from attention over
// each:
//   lse = log(exp(lse_a) + exp(lse_b)),   out = exp(lse_a - lse) * out_a + exp(lse_b - lse) * out_b
//   out_a, out_b [B, T, H, V], lse_a, lse_b [B, T, H] -> out, lse.  -inf stands for no keys.
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

}  // namespace tessera
