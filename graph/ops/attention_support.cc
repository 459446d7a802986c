#include "graph/ops/attention_support.h"

#include <algorithm>
#include <limits>

#include "graph/base/text.h"

namespace tessera::ops {

AttrSpec window_spec() {
  return {.name = "window",
          .type = AttrType::kI64,
          .default_value = AttrValue(int64_t{0}),
          .meaning = "a query sees keys less than this far away; 0: at any distance",
          .is_late = true};
}

AttrSpec softcap_spec() {
  return {.name = "softcap",
          .type = AttrType::kF64,
          .default_value = AttrValue(0.0),
          .meaning = "c: scores s become c * tanh(s / c); 0: they stay",
          .is_late = true};
}

const AttrSpec kAttentionAttrs[4] = {
    {"causal", AttrType::kI64, int64_t{1}, "1: a query sees the keys up to its own position; 0: all"},
    {"scale", AttrType::kF64, 0.0, "factor of the scores; 0: 1/sqrt(D)"},
    window_spec(),
    softcap_spec(),
};

Status check_attention_operands(std::string_view op, Types inputs, Attrs attrs, int q, int k, int v) {
  TSR_RETURN_IF_ERROR(check_float(op, inputs, q, "q"));
  TSR_RETURN_IF_ERROR(check_rank(op, inputs, q, "q", 4));
  const TensorType& query = inputs[static_cast<size_t>(q)];
  const TensorType& key = inputs[static_cast<size_t>(k)];
  TSR_RETURN_IF_ERROR(check_dtype(op, inputs, k, "k", query.dtype));
  TSR_RETURN_IF_ERROR(check_rank(op, inputs, k, "k", 4));
  TSR_RETURN_IF_ERROR(check_extent(op, inputs, k, "k", 0, query.shape[0]));
  TSR_RETURN_IF_ERROR(check_extent(op, inputs, k, "k", 3, query.shape[3]));
  TSR_RETURN_IF_ERROR(check_dtype(op, inputs, v, "v", query.dtype));
  TSR_RETURN_IF_ERROR(check_rank(op, inputs, v, "v", 4));
  for (const int dim : {0, 1, 2}) TSR_RETURN_IF_ERROR(check_extent(op, inputs, v, "v", dim, key.shape[dim]));
  const int64_t heads = query.shape[2], kv_heads = key.shape[2];
  const bool symbolic = is_symbol(heads) || is_symbol(kv_heads);
  const bool divides = kv_heads > 0 ? heads % kv_heads == 0 : heads == 0;
  if (heads != kv_heads && kv_heads != 1 && (symbolic || !divides))
    return Status(StatusCode::kInvalidArgument,
                  format("{}: q {} must have a multiple of the heads (dim 2) of k {}; grouped queries "
                         "share one key head among H / KV query heads",
                         op, query, key));
  constexpr int64_t kMostWindow = std::numeric_limits<int32_t>::max();
  if (const int64_t window = attr_i64(attrs, "window"); window < 0 || window > kMostWindow)
    return Status(
        StatusCode::kInvalidArgument,
        format("{}: window is {}, wanted 1 to {} positions, or 0 for none", op, window, kMostWindow));
  return check_range(op, attrs, "softcap", 0, kUnbounded);
}

std::vector<Attr> paged_attrs(Attrs attention, bool with_lse) {
  return {{"scale", attr_f64(attention, "scale")},
          {"window", attr_i64(attention, "window")},
          {"softcap", attr_f64(attention, "softcap")},
          {"with_lse", int64_t{with_lse}}};
}

Status check_segments(std::string_view op, Types inputs, int first, int q, int k) {
  const Shape &query = inputs[static_cast<size_t>(q)].shape, &key = inputs[static_cast<size_t>(k)].shape;
  TSR_RETURN_IF_ERROR(check_indices(op, inputs, first, "q_segment", Shape{query[0], query[1]}));
  return check_indices(op, inputs, first + 1, "k_segment", Shape{key[0], key[1]});
}

Status check_pages(std::string_view op, Types inputs, int index, std::string_view name, DType other) {
  TSR_RETURN_IF_ERROR(check_rank(op, inputs, index, name, 4));
  const DType found = inputs[static_cast<size_t>(index)].dtype;
  const bool is_half = found == DType::kBF16 || found == DType::kF16;
  if (is_half && other == DType::kF32) return {};
  if (found == DType::kQ8_0 && info(other).is_float) return {};
  return check_dtype(op, inputs, index, name, other);
}

Shape attended_shape(const Shape& q, const Shape& v) { return with_last(without_last(q), last_extent(v)); }

char value_width(const Shape& k, const Shape& v) { return last_extent(k) == last_extent(v) ? 'd' : 'e'; }

ShardingRule attention_rule(std::string text, char value_width) {
  std::ranges::replace(text, '*', value_width);
  return make_rule(text, {}, value_width == 'd' ? "sd" : "sde");
}

double visible_pairs(const OpView& view, const Shape& q, const Shape& k) {
  const double all_heads = static_cast<double>(q[0]) * static_cast<double>(q[2]);
  const int64_t queries = q[1], keys = k[1];
  const bool causal = attr_i64(view.attrs, "causal") != 0;
  const int64_t window = attr_i64(view.attrs, "window");
  if (!causal && window == 0) return all_heads * static_cast<double>(queries) * static_cast<double>(keys);
  // Pairs of the queries before `position` with those of `count` keys from `first` on that are no later than the query.
  const auto pairs_before = [](int64_t position, int64_t first, int64_t count) {
    position = std::max<int64_t>(position - first, 0);
    const double ramp = static_cast<double>(std::min(position, count));
    return ramp * (ramp + 1) / 2 +
           static_cast<double>(std::max<int64_t>(position - count, 0)) * static_cast<double>(count);
  };
  const auto find_factor = [&](char name, int64_t extent) {
    const auto at = std::ranges::find(view.factors, name, &FactorView::name);
    FactorView whole;
    whole.end[0] = extent;
    return at == view.factors.end() ? whole : *at;
  };
  const FactorView t = find_factor('t', queries), s = find_factor('s', keys);
  // Keys up to `ahead` positions after the query, without those `window` and more before it.
  const int64_t ahead = causal ? 0 : window - 1;
  double pairs = 0;
  for (int32_t i = 0; i < t.range_count; ++i)
    for (int32_t j = 0; j < s.range_count; ++j) {
      const int64_t first = s.begin[j], count = s.end[j] - first;
      const auto between = [&](int64_t later) {
        return pairs_before(t.end[i], first + later, count) - pairs_before(t.begin[i], first + later, count);
      };
      pairs += between(-ahead);
      if (window > 0) pairs -= between(window);
    }
  return all_heads * pairs;
}

}  // namespace tessera::ops
