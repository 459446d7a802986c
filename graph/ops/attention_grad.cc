// attention_grad: with p = exp(s - lse), delta = rowsum(dout * out) - dlse, ds = p * (dout . v - delta), times
// 1 - (s / softcap)^2 under a cap, sums over the pairs that see each other:
//   dq[t] = scale * sum_j ds * k[j],   dk[j] = scale * sum_{t, g} ds * q[t],   dv[j] = sum_{t, g} p * dout[t]
//   dout [B, T, H, V], q [B, T, H, D], k [B, S, KV, D], v [B, S, KV, V], out [B, T, H, V], lse [B, T, H], then
//   q_segment [B, T] and k_segment [B, S] where the attention has them, then dlse [B, T, H] where lse is differentiated
//   -> dq, dk, dv.  With t or g sharded, dq is sharded and dk and dv are partial.
#include "graph/base/text.h"
#include "graph/ops/attention_support.h"

namespace tessera {

using namespace ops;

namespace {

constexpr std::string_view kName = "attention_grad";

bool has_segments(Types in) { return in.size() >= 8; }
bool has_dlse(Types in) { return in.size() % 2 == 1; }

Inferred attention_grad_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 6, 9));
  TSR_RETURN_IF_ERROR(check_attention_operands(kName, in, attrs, 1, 2, 3));
  for (const int i : {0, 4}) {
    TSR_RETURN_IF_ERROR(check_dtype(kName, in, i, i == 0 ? "dout" : "out", in[1].dtype));
    TSR_RETURN_IF_ERROR(
        check_shape(kName, in, i, i == 0 ? "dout" : "out", attended_shape(in[1].shape, in[3].shape)));
  }
  TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, 5, "lse", in[1]));
  if (has_segments(in)) TSR_RETURN_IF_ERROR(check_segments(kName, in, 6, 1, 2));
  if (has_dlse(in))
    TSR_RETURN_IF_ERROR(check_row_statistic(kName, in, static_cast<int>(in.size()) - 1, "dlse", in[1]));
  return std::vector<TensorType>{in[1], in[2], in[3]};
}

ShardingRule attention_grad_sharding(const OpView& view) {
  std::string text = "bt(kg)*,bt(kg)d,bskd,bsk*,bt(kg)*,bt(kg)";
  if (has_segments(view.inputs)) text += ",bt,bs";
  if (has_dlse(view.inputs)) text += ",bt(kg)";
  ShardingRule rule =
      attention_rule(text + "->bt(kg)d,bskd,bsk*", value_width(view.inputs[2].shape, view.inputs[3].shape));
  rule.find('t')->kind = rule.find('g')->kind = FactorKind::kReduce;
  if (attr_i64(view.attrs, "causal") != 0) rule.order = {'t', 's'};
  return rule;
}

// Five products for every pair: the recomputed scores, dout . v, and the three gradients.
OpCost attention_grad_cost(const OpView& view) {
  const Shape &q = view.inputs[1].shape, &k = view.inputs[2].shape, &v = view.inputs[3].shape;
  return traffic_cost(
      view, 2.0 * visible_pairs(view, q, k) * static_cast<double>(3 * last_extent(q) + 2 * last_extent(v)));
}

}  // namespace

extern const OpDef kAttentionGrad = {.name = kName,
                                     .attrs = kAttentionAttrs,
                                     .infer = attention_grad_infer,
                                     .sharding = attention_grad_sharding,
                                     .cost = attention_grad_cost};

}  // namespace tessera
