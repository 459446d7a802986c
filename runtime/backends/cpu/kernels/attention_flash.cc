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
#include "runtime/backends/cpu/kernels/attention_tiles-inl.h"
#include "runtime/backends/cpu/kernels/vector_math-inl.h"

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

// Turns one row of scores into weights exp(score - maximum), zero from `count` on. Updates max and sum;
// returns the factor that shrinks the earlier sums.
float online_softmax(float* scores, int64_t count, float& top, float& sum) {
  const DF d;
  const float none = -std::numeric_limits<float>::infinity();
  if (count <= 0) {
    for (int64_t j = 0; j < kTileKeys; j += kLanes) hn::Store(hn::Zero(d), d, scores + j);
    return 1;
  }
  VF best = hn::Set(d, none);
  for (int64_t j = 0; j < count; j += kLanes) {
    const VF x = hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(count - j)), hn::Load(d, scores + j),
                                hn::Set(d, none));
    best = hn::Max(x, best);
  }
  const float block_top = std::max(top, hn::GetLane(hn::MaxOfLanes(d, best)));
  const VF maximum = hn::Set(d, block_top);
  VF total = hn::Zero(d);
  for (int64_t j = 0; j < kTileKeys; j += kLanes) {
    VF p = hn::Zero(d);
    if (j < count) {
      p = fast_exp(d, hn::Sub(hn::Load(d, scores + j), maximum));
      p = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count - j)), p);
    }
    total = hn::Add(total, p);
    hn::Store(p, d, scores + j);
  }
  const float shrink = top == none ? 0.0f : std::exp(top - block_top);
  sum = sum * shrink + hn::GetLane(hn::SumOfLanes(d, total));
  top = block_top;
  return shrink;
}

// RowTile: rows [begin, begin + count) of a key-value head, at most kTileQueries, with their queries scaled.
struct RowTile {
  int64_t b, kv, begin, count;
  int64_t width, out_width;  // of a row of queries and of results, in whole panels
  const float* q;            // [count][width]
  const TileKeys& keys;
  const int32_t* segments;  // of the keys of b, or null

  // `scaled` [count][width] is filled.
  RowTile(const AttentionShape& e, const AttentionBuffers& x, const TileKeys& seen, int64_t of_b,
          int64_t of_kv, int64_t tile, float* scaled)
      : b(of_b),
        kv(of_kv),
        begin(tile * kTileQueries),
        count(std::min(kTileQueries, e.rows() - begin)),
        width(padded(e.D, kPanel)),
        out_width(padded(e.V, kPanel)),
        q(scaled),
        keys(seen),
        segments(x.k_segment == nullptr ? nullptr : x.k_segment + b * e.S) {
    for (int64_t i = 0; i < count; ++i)
      copy_scaled(x.q + e.query(b, kv, begin + i) * e.D, e.D, e.scale, scaled + i * width, width);
  }
};

// The keys of span `span`: maxima and sums of the rows' weights, and weighted values [count][out_width]. `keys`
// [kTileKeys][the larger width] and `scores` [count][kTileKeys] are scratch.
void attend_span(const AttentionShape& e, const AttentionBuffers& x, const RowTile& tile, int64_t span,
                 float* keys, float* scores, float* top, float* sum, float* out) {
  const TileKeys& seen = tile.keys;
  const int64_t width = tile.width, out_width = tile.out_width;
  const int64_t begin = std::max(span * kSpanKeys, seen.least / kTileKeys * kTileKeys);
  const int64_t end = std::min((span + 1) * kSpanKeys, seen.most);
  const bool edits = e.edits_scores();
  for (int64_t i = 0; i < tile.count; ++i) {
    top[i] = -std::numeric_limits<float>::infinity();
    sum[i] = 0;
  }
  bool is_begun = false;
  for (int64_t s = begin; s < end; s += kTileKeys) {
    const int64_t block = std::min(kTileKeys, end - s), first = e.key(tile.b, s, tile.kv);
    if (edits && !seen.meets(s, block, tile.segments)) continue;
    pack_keys(x.k + first * e.D, e.KV * e.D, block, e.S - s, e.D, keys);
    tile_product(tile.count, padded(block, kPanel), e.D, tile.q, width, 1, keys, kTileKeys, scores, kTileKeys,
                 false);
    for (int64_t i = 0; i < tile.count; ++i) {
      float* const row = scores + i * kTileKeys;
      int64_t count = std::min(kTileKeys, seen.end[i] - s);
      if (edits && count > 0 &&
          !edit_scores(e.softcap, std::max<int64_t>(seen.from[i] - s, 0), count,
                       tile.segments == nullptr ? nullptr : tile.segments + s, seen.segment[i], row))
        count = 0;
      const float shrink = online_softmax(row, count, top[i], sum[i]);
      if (is_begun && shrink != 1)
        copy_scaled(out + i * out_width, out_width, shrink, out + i * out_width, out_width);
    }
    const KeyRows values(x.v + first * e.V, e.KV * e.V, block, e.V, out_width, keys);
    tile_product(tile.count, out_width, block, scores, kTileKeys, 1, values.data, values.stride, out,
                 out_width, is_begun);
    is_begun = true;
  }
  if (!is_begun) std::fill_n(out, tile.count * out_width, 0.0f);
}

// Merges what a span gives, in `part`, with what those before it give.
HWY_NOINLINE void merge_span(const RowTile& tile, const float* part_top, const float* part_sum,
                             const float* part, float* top, float* sum, float* out) {
  const DF d;
  for (int64_t i = 0; i < tile.count; ++i) {
    if (part_top[i] == -std::numeric_limits<float>::infinity()) continue;  // sees nothing of it
    const float most = std::max(top[i], part_top[i]);
    const float kept = std::exp(top[i] - most), added = std::exp(part_top[i] - most);
    top[i] = most;
    sum[i] = sum[i] * kept + part_sum[i] * added;
    for (int64_t j = i * tile.out_width; j < (i + 1) * tile.out_width; j += kLanes)
      hn::StoreU(hn::MulAdd(hn::LoadU(d, part + j), hn::Set(d, added),
                            hn::Mul(hn::LoadU(d, out + j), hn::Set(d, kept))),
                 d, out + j);
  }
}

// The rows' results, from sums over all keys.
void store_rows(const AttentionShape& e, const AttentionBuffers& x, const RowTile& tile, const float* top,
                const float* sum, const float* out) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < tile.count; ++i) {
    const int64_t row = e.query(tile.b, tile.kv, tile.begin + i);
    const bool sees = top[i] != kNone;
    copy_scaled(out + i * tile.out_width, e.V, sees ? 1 / sum[i] : 0.0f, x.out + row * e.V, e.V);
    if (x.lse != nullptr) x.lse[row] = sees ? top[i] + std::log(sum[i]) : kNone;
  }
}

// Tile `tile` of the rows of (b, kv), span after span.
void attend_tile(const AttentionShape& e, const AttentionBuffers& x, const Pool& pool, int64_t b, int64_t kv,
                 int64_t tile) {
  // Sizes in floats of a tile of 64 rows: queries, results, keys or values.
  const int64_t of_q = kTileQueries * padded(e.D, kPanel), of_out = kTileQueries * padded(e.V, kPanel);
  const int64_t of_keys = std::max(of_q, of_out);
  Scratch scratch(pool, of_q + 2 * of_out + of_keys + kTileQueries * kTileKeys);
  const TileKeys seen = x.keys_of(e, b, tile);
  const RowTile rows(e, x, seen, b, kv, tile, scratch.floats(of_q));
  float* const out = scratch.floats(of_out);
  float* const part = scratch.floats(of_out);
  float* const keys = scratch.floats(of_keys);
  float* const scores = scratch.floats(kTileQueries * kTileKeys);
  float top[kTileQueries], sum[kTileQueries], part_top[kTileQueries], part_sum[kTileQueries];
  attend_span(e, x, rows, seen.first_span(), keys, scores, top, sum, out);
  for (int64_t span = seen.first_span() + 1; span < seen.end_span(); ++span) {
    attend_span(e, x, rows, span, keys, scores, part_top, part_sum, part);
    merge_span(rows, part_top, part_sum, part, top, sum, out);
  }
  store_rows(e, x, rows, top, sum, out);
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
  const RowTile tile(e, x, seen, pair / e.KV, pair % e.KV, 0, scratch.floats(query_floats));
  float* const keys = scratch.floats(key_floats);
  float* const scores = scratch.floats(rows * kTileKeys);
  const auto top = [&](int64_t s) { return results.top(x.spans, pair, s); };
  const auto sum = [&](int64_t s) { return results.sum(x.spans, pair, s); };
  const auto out = [&](int64_t s) { return results.out(x.spans, pair, s); };
  attend_span(e, x, tile, span, keys, scores, top(span), sum(span), out(span));
  std::atomic_ref<int32_t> done(results.done(x.spans)[pair]);
  if (done.fetch_add(1, std::memory_order_acq_rel) + 1 < end - first) return;
  for (int64_t s = first + 1; s < end; ++s)
    merge_span(tile, top(s), sum(s), out(s), top(first), sum(first), out(first));
  store_rows(e, x, tile, top(first), sum(first), out(first));
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
    attend_tile(e, x, pool, pair / e.KV, pair % e.KV, tiles - 1 - task / (e.B * e.KV));
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
