// attention in f32 by tiles of 64 rows and 64 keys, which never leave the caches (Dao et al., "FlashAttention", 2022; Dao,
// "FlashAttention-2", 2023). Tiles wholly above the diagonal are not visited. Keys are summed by spans
// (attention_spans-inl.h).
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/backends/cpu/kernels/attention_shape.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/attention_flash.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/attention_spans-inl.h"

#ifndef TSR_ATTENTION_FLASH_CC_ONCE_
#define TSR_ATTENTION_FLASH_CC_ONCE_
namespace tessera::cpu {
namespace {

struct AttentionBuffers {
  const float *q, *k, *v;
  const int32_t *q_segment, *k_segment;  // [B, T] and [B, S], or null
  float *out, *lse;

  // The keys that the rows of tile `tile` of sequence b attend to.
  TileKeys keys_of(const AttentionShape& e, int64_t b, int64_t tile) const {
    const int64_t begin = tile * kTileQueries, count = std::min(kTileQueries, e.rows() - begin);
    return {e, begin, count, q_segment == nullptr ? nullptr : q_segment + b * e.T};
  }
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// Keys and values [B, S, KV, D] and [B, S, KV, V], of one sequence and head.
struct WholeKeys {
  const AttentionShape& e;
  const AttentionBuffers& x;
  int64_t b, kv;

  bool has(int64_t, int64_t) const { return true; }
  const int32_t* segments() const { return x.k_segment == nullptr ? nullptr : x.k_segment + b * e.S; }
  void pack(int64_t s, int64_t block, float* keys) const {
    pack_keys(x.k + e.key(b, s, kv) * e.D, e.KV * e.D, block, e.S - s, e.D, keys);
  }
  KeyRows values(int64_t s, int64_t block, float* copy) const {
    return KeyRows(x.v + e.key(b, s, kv) * e.V, e.KV * e.V, block, e.V, padded(e.V, kPanel), copy);
  }
};

// Tile `tile` of the rows of (b, kv).
void attend_rows(const AttentionShape& e, const AttentionBuffers& x, const Pool& pool, int64_t b, int64_t kv,
                 int64_t tile) {
  const int64_t begin = tile * kTileQueries;
  const TileKeys seen = x.keys_of(e, b, tile);
  const auto query = [&](int64_t i) { return e.query(b, kv, begin + i); };
  const int64_t of_q = kTileQueries * padded(e.D, kPanel);
  Scratch scratch(pool, of_q + tile_scratch_floats(e));
  const RowTile rows(e, x.q, seen, std::min(kTileQueries, e.rows() - begin), query, scratch.floats(of_q));
  attend_tile(e, WholeKeys{e, x, b, kv}, rows, query, scratch, x.out, x.lse);
}

void attention(const AttentionShape& e, const AttentionBuffers& x, const Pool& pool) {
  if (e.B * e.T * e.H == 0) return;
  const int64_t tiles = e.tiles();
  // The last tiles see the most keys: they go first.
  pool.parallel_for(e.B * e.KV * tiles, [&](int64_t task) {
    const int64_t pair = task % (e.B * e.KV);
    attend_rows(e, x, pool, pair / e.KV, pair % e.KV, tiles - 1 - task / (e.B * e.KV));
  });
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(attention);

// q [B, T, H, D], k [B, S, KV, D], v [B, S, KV, V] (, q_segment [B, T], k_segment [B, S]) -> out [B, T, H, V],
// lse [B, T, H]
Result<PreparedKernel> prepare_attention_flash(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(AttentionShape e, attention_shape(spec, 0, 1, 2, spec.i64("causal") == 1));
  e.has_segments = spec.input_count() == 5;
  return prepared_attention(e, make_kernel([e](const LaunchArgs& args) {
                              const AttentionBuffers x{args.in<float>(0),
                                                       args.in<float>(1),
                                                       args.in<float>(2),
                                                       e.has_segments ? args.in<int32_t>(3) : nullptr,
                                                       e.has_segments ? args.in<int32_t>(4) : nullptr,
                                                       args.out<float>(0),
                                                       args.out<float>(1)};
                              HWY_DYNAMIC_DISPATCH(attention)(e, x, args.pool);
                            }),
                            1, 1);
}

}  // namespace tessera::cpu
#endif
