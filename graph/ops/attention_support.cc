#include "graph/ops/attention_support.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera::ops {

Status check_attention_operands(std::string_view op, Types inputs, int q, int k, int v) {
  TSR_RETURN_IF_ERROR(check_float(op, inputs, q, "q"));
  TSR_RETURN_IF_ERROR(check_rank(op, inputs, q, "q", 4));
  const TensorType& query = inputs[static_cast<size_t>(q)];
  const TensorType& key = inputs[static_cast<size_t>(k)];
  TSR_RETURN_IF_ERROR(check_dtype(op, inputs, k, "k", query.dtype));
  TSR_RETURN_IF_ERROR(check_rank(op, inputs, k, "k", 4));
  TSR_RETURN_IF_ERROR(check_extent(op, inputs, k, "k", 0, query.shape[0]));
  TSR_RETURN_IF_ERROR(check_extent(op, inputs, k, "k", 3, query.shape[3]));
  TSR_RETURN_IF_ERROR(check_same_type(op, inputs, v, k));
  const int64_t heads = query.shape[2], kv_heads = key.shape[2];
  const bool symbolic = is_symbol(heads) || is_symbol(kv_heads);
  const bool divides = kv_heads > 0 ? heads % kv_heads == 0 : heads == 0;
  if (heads != kv_heads && (symbolic || !divides))
    return Status(
        StatusCode::kInvalidArgument,
        format("{}: q {} has a number of heads (dim 2) that is no multiple of that of k {}; grouped queries "
               "share one key head among H / KV query heads",
               op, query, key));
  return {};
}

double visible_pairs(const OpView& view, const Shape& q, const Shape& k) {
  const double rows = static_cast<double>(q[0]) * static_cast<double>(q[2]);
  const int64_t queries = q[1], keys = k[1];
  if (attr_i64(view.attrs, "causal") == 0)
    return rows * static_cast<double>(queries) * static_cast<double>(keys);
  // With keys from `first` on, the query at position p sees min(p + 1 - first, keys) of them.
  const auto seen_before = [](int64_t position, int64_t first, int64_t count) {
    position = std::max<int64_t>(position - first, 0);
    const double ramp = static_cast<double>(std::min(position, count));
    return ramp * (ramp + 1) / 2 +
           static_cast<double>(std::max<int64_t>(position - count, 0)) * static_cast<double>(count);
  };
  const auto ranges = [&](char name, int64_t extent) {
    const auto at = std::ranges::find(view.factors, name, &FactorView::name);
    FactorView whole;
    whole.end[0] = extent;
    return at == view.factors.end() ? whole : *at;
  };
  const FactorView t = ranges('t', queries), s = ranges('s', keys);
  double pairs = 0;
  for (int32_t i = 0; i < t.range_count; ++i)
    for (int32_t j = 0; j < s.range_count; ++j) {
      const int64_t count = s.end[j] - s.begin[j];
      pairs += seen_before(t.end[i], s.begin[j], count) - seen_before(t.begin[i], s.begin[j], count);
    }
  return rows * pairs;
}

}  // namespace tessera::ops
