// attention and attention_cached in f32 by tiles of 64 rows and 64 keys, which never leave the caches (Dao et
// al., "FlashAttention", 2022; Dao, "FlashAttention-2", 2023). Tiles wholly above the diagonal are not visited.
// Keys are summed in spans of 128 that begin at multiples of that, each from zero, and spans are merged in order: a
// row has the same bits however many rows come with it, and whether its spans are summed by one thread or by
// several ("Flash-Decoding", Dao et al., 2023).
#include <algorithm>
#include <atomic>
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
  const int32_t *start, *q_segment, *k_segment;  // [B] or null; [B, T] and [B, S] or null
  float *out, *lse;                              // lse may be null
  void* spans = nullptr;  // SpanResults of every (b, kv), where tasks share the keys of few rows

  // The keys that the rows of tile `tile` of sequence b attend to.
  TileKeys keys_of(const AttentionShape& e, int64_t b, int64_t tile) const {
    const int64_t begin = tile * kTileQueries, count = std::min(kTileQueries, e.rows() - begin);
    return {e, begin, count, start == nullptr ? 0 : start[b],
            q_segment == nullptr ? nullptr : q_segment + b * e.T};
  }
};

// The tile of a key-value head's rows, while they are fewer than a tile has: what each span of keys gives, and how
// many of the spans are done. In the kernel's workspace.
struct SpanResults {
  int64_t rows, width, spans, pairs;

  // Widths are multiples of the widest panel, so that the plan holds for any instruction set.
  explicit SpanResults(const AttentionShape& e)
      : rows(e.rows()), width((e.V + 31) / 32 * 32), spans(e.spans()), pairs(e.B * e.KV) {}

  static int64_t up_to_16(int64_t floats) { return (floats + 15) / 16 * 16; }
  int64_t floats() const { return rows * width + 2 * up_to_16(rows); }  // of a span: out, maxima, sums
  int64_t bytes() const { return 4 * (pairs * spans * floats() + up_to_16(pairs)); }
  float* out(void* memory, int64_t pair, int64_t span) const {
    return static_cast<float*>(memory) + (pair * spans + span) * floats();
  }
  float* top(void* memory, int64_t pair, int64_t span) const {
    return out(memory, pair, span) + rows * width;
  }
  float* sum(void* memory, int64_t pair, int64_t span) const {
    return top(memory, pair, span) + up_to_16(rows);
  }
  int32_t* done(void* memory) const { return static_cast<int32_t*>(memory) + pairs * spans * floats(); }
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

// A span of the rows of (b, kv), which are one tile. The last of them that is done merges all.
void attend_span_of(const AttentionShape& e, const AttentionBuffers& x, const Pool& pool, int64_t pair,
                    int64_t span) {
  const TileKeys seen = x.keys_of(e, pair / e.KV, 0);
  const int64_t first = seen.first_span(), end = seen.end_span();
  if (span < first || span >= end) return;
  const int64_t rows = e.rows(), width = padded(e.D, kPanel);
  const SpanResults results(e);
  const int64_t query_floats = SpanResults::up_to_16(rows * width);
  const int64_t key_floats = kTileKeys * std::max(width, padded(e.V, kPanel));
  Scratch scratch(pool, query_floats + key_floats + rows * kTileKeys);
  const int64_t b = pair / e.KV, kv = pair % e.KV;
  const auto query = [&](int64_t i) { return e.query(b, kv, i); };
  const RowTile tile(e, x.q, seen, rows, query, scratch.floats(query_floats));
  float* const keys = scratch.floats(key_floats);
  float* const scores = scratch.floats(rows * kTileKeys);
  const auto top = [&](int64_t s) { return results.top(x.spans, pair, s); };
  const auto sum = [&](int64_t s) { return results.sum(x.spans, pair, s); };
  const auto out = [&](int64_t s) { return results.out(x.spans, pair, s); };
  attend_span(e, WholeKeys{e, x, b, kv}, tile, span, keys, scores, top(span), sum(span), out(span));
  std::atomic_ref<int32_t> done(results.done(x.spans)[pair]);
  if (done.fetch_add(1, std::memory_order_acq_rel) + 1 < end - first) return;
  for (int64_t s = first + 1; s < end; ++s)
    merge_span(tile, top(s), sum(s), out(s), top(first), sum(first), out(first));
  store_rows(e, tile, query, top(first), sum(first), out(first), x.out, x.lse);
}

void attend_by_spans(const AttentionShape& e, const AttentionBuffers& x, const Pool& pool) {
  const SpanResults results(e);
  const int64_t pairs = results.pairs;
  std::fill_n(results.done(x.spans), SpanResults::up_to_16(pairs), 0);  // to the end of the workspace
  int64_t first = e.spans(), end = 0;                                   // of any sequence
  for (int64_t b = 0; b < e.B; ++b) {
    const TileKeys seen = x.keys_of(e, b, 0);
    first = std::min(first, seen.first_span());
    end = std::max(end, seen.end_span());
  }
  pool.parallel_for(pairs * (end - first),
                    [&](int64_t task) { attend_span_of(e, x, pool, task % pairs, first + task / pairs); });
}

void attention(const AttentionShape& e, const AttentionBuffers& x, const Pool& pool) {
  if (e.B * e.T * e.H == 0) return;
  if (x.spans != nullptr) return attend_by_spans(e, x, pool);
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
                                                       nullptr,
                                                       e.has_segments ? args.in<int32_t>(3) : nullptr,
                                                       e.has_segments ? args.in<int32_t>(4) : nullptr,
                                                       args.out<float>(0),
                                                       args.out<float>(1)};
                              HWY_DYNAMIC_DISPATCH(attention)(e, x, args.pool);
                            }),
                            1, 1);
}

// q [B, T, H, D], k_cache [B, S, KV, D], v_cache [B, S, KV, V], start [B] -> out [B, T, H, V] (, lse [B, T, H]).
// `start` is untrusted: positions beyond the cache are not read, and a query before position 0 sees nothing.
Result<PreparedKernel> prepare_attention_cached_flash(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const AttentionShape e, attention_shape(spec, 0, 1, 2, true));
  const bool by_spans = e.B * e.T * e.H > 0 && e.tiles() == 1 && e.spans() > 1;
  const bool has_lse = spec.output_count() == 2;
  PreparedKernel prepared =
      prepared_attention(e, make_kernel([e, by_spans, has_lse](const LaunchArgs& args) {
                           const AttentionBuffers x{args.in<float>(0),
                                                    args.in<float>(1),
                                                    args.in<float>(2),
                                                    args.in<int32_t>(3),
                                                    nullptr,
                                                    nullptr,
                                                    args.out<float>(0),
                                                    has_lse ? args.out<float>(1) : nullptr,
                                                    by_spans ? args.workspace : nullptr};
                           HWY_DYNAMIC_DISPATCH(attention)(e, x, args.pool);
                         }),
                         1, 1);
  if (by_spans) prepared.workspace_bytes = SpanResults(e).bytes();
  return prepared;
}

}  // namespace tessera::cpu
#endif
