// attention_cached(q, k_cache, v_cache, start): causal attention over a cache. Query i of sequence b is at
// position start[b] + i and sees the cached positions up to it, with a window those less than that far back; a query
// that sees none (at a negative position) gives 0 and lse -inf.
//   q [B, T, H, D], k_cache [B, S, KV, D], v_cache [B, S, KV, V], start [B] i32 -> out [B, T, H, V], and with
//   with_lse = 1 lse [B, T, H] as attention has it.  For decoding: no gradient.
#include <algorithm>

#include "graph/base/text.h"
#include "graph/ops/attention_support.h"

namespace tessera {

using namespace ops;

namespace {

constexpr std::string_view kName = "attention_cached";
const AttrSpec kAttrs[] = {
    {"scale", AttrType::kF64, 0.0, "factor of the scores; 0: 1/sqrt(D)"},
    window_spec(),
    softcap_spec(),
    {.name = "with_lse",
     .type = AttrType::kI64,
     .default_value = AttrValue(int64_t{0}),
     .meaning = "1: a second result, the log of each sum",
     .is_late = true},
};

Inferred attention_cached_infer(Types in, Attrs attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4));
  TSR_RETURN_IF_ERROR(check_flag(kName, attrs, "with_lse"));
  TSR_RETURN_IF_ERROR(check_attention_operands(kName, in, attrs, 0, 1, 2));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 3, "start", Shape{in[0].shape[0]}));
  std::vector<TensorType> out = {{in[0].dtype, attended_shape(in[0].shape, in[2].shape)}};
  if (attr_i64(attrs, "with_lse") == 1)
    out.push_back({statistics_dtype(in[0].dtype), without_last(in[0].shape)});
  return out;
}

ShardingRule attention_cached_sharding(const OpView& view) {
  const bool with_lse = attr_i64(view.attrs, "with_lse") == 1;
  return attention_rule(std::string("bt(kg)d,bskd,bsk*,b->bt(kg)*") + (with_lse ? ",bt(kg)" : ""),
                        value_width(view.inputs[1].shape, view.inputs[2].shape));
}

// The fill of the cache is not known here: all of it is counted, or what a window shows of it.
OpCost attention_cached_cost(const OpView& view) {
  const Shape &q = view.inputs[0].shape, &k = view.inputs[1].shape, &v = view.inputs[2].shape;
  const int64_t window = attr_i64(view.attrs, "window");
  const int64_t seen = window == 0 ? k[1] : std::min(k[1], window);         // by a query
  const int64_t read = window == 0 ? k[1] : std::min(k[1], window + q[1]);  // by all of a sequence
  const double queries = static_cast<double>(q[0] * q[1]) * static_cast<double>(q[2]);
  OpCost cost = traffic_cost(
      view, 2.0 * queries * static_cast<double>(last_extent(q) + last_extent(v)) * static_cast<double>(seen));
  if (read < k[1])
    cost.bytes_read -= static_cast<double>(bytes(view.inputs[1]) + bytes(view.inputs[2])) *
                       (1 - static_cast<double>(read) / static_cast<double>(k[1]));
  return cost;
}

}  // namespace

extern const OpDef kAttentionCached = {.name = kName,
                                       .attrs = kAttrs,
                                       .infer = attention_cached_infer,
                                       .sharding = attention_cached_sharding,
                                       .cost = attention_cached_cost};

}  // namespace tessera
