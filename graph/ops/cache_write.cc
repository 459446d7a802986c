// cache_write(cache, new, start, length): the cache with rows start[b] .. start[b] + length[b] - 1 of
// sequence b replaced by the first length[b] rows of new[b]. Rows that fall outside the cache are dropped.
//   cache [B, S, KV, D], new [B, T, KV, D], start, length [B] i32 -> cache [B, S, KV, D], in place.
//   Jointly linear in cache and new. For decoding: no gradient.

#include "graph/ops/op_support.h"

namespace tessera {

using namespace ops;

namespace cache_write {

constexpr std::string_view kName = "cache_write";
const int kInPlace[] = {0};

Inferred infer(Types in, Attrs) {
  TSR_RETURN_IF_ERROR(check_count(kName, in, 4));
  TSR_RETURN_IF_ERROR(check_float(kName, in, 0, "cache"));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 0, "cache", 4));
  TSR_RETURN_IF_ERROR(check_dtype(kName, in, 1, "new", in[0].dtype));
  TSR_RETURN_IF_ERROR(check_rank(kName, in, 1, "new", 4));
  for (int dim : {0, 2, 3}) TSR_RETURN_IF_ERROR(check_extent(kName, in, 1, "new", dim, in[0].shape[dim]));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 2, "start", Shape{in[0].shape[0]}));
  TSR_RETURN_IF_ERROR(check_indices(kName, in, 3, "length", Shape{in[0].shape[0]}));
  return std::vector<TensorType>{in[0]};
}

ShardingRule sharding(const OpView&) { return make_rule("bskd,btkd,b,b->bskd", {{0, 1}}, "st"); }

// In place, so only the new rows move.
OpCost cost(const OpView& view) {
  const auto moved = static_cast<double>(bytes(view.inputs[1]));
  return {.flops = 0, .bytes_read = moved, .bytes_written = moved};
}

}  // namespace cache_write

extern const OpDef kCacheWrite = {.name = cache_write::kName,
                                  .infer = cache_write::infer,
                                  .sharding = cache_write::sharding,
                                  .cost = cache_write::cost,
                                  .in_place = cache_write::kInPlace};

}  // namespace tessera
