// Attention by tiles of rows and spans of keys, per instruction set. Keys are summed in spans
// of kSpanKeys, aligned to multiples of it, each from zero; spans are merged in order. A row's
// bits depend neither on the other rows of its tile nor on the threads that sum its spans.
#if defined(TSR_ATTENTION_SPANS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TSR_ATTENTION_SPANS_INL_H_
#undef TSR_ATTENTION_SPANS_INL_H_
#else
#define TSR_ATTENTION_SPANS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/attention_shape.h"
#include "runtime/backends/cpu/kernels/attention_tiles-inl.h"
#include "runtime/backends/cpu/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// Turns one row of scores into weights exp(score - maximum), zero from `count` on. Updates max and sum;
// returns the factor that shrinks the earlier sums.
inline float online_softmax(float* scores, int64_t count, float& top, float& sum) {
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

// RowTile: at most kTileQueries rows of a key-value head, with their queries scaled.
struct RowTile {
  int64_t count;
  int64_t width, out_width;  // of a row of queries and of results, in whole panels
  const float* q;            // [count][width]
  const TileKeys& keys;

  // `query(i)` is the number of row i among all queries; `scaled` [count][width] is filled.
  template <class Query>
  RowTile(const AttentionShape& e, const float* queries, const TileKeys& seen, int64_t rows, Query query,
          float* scaled)
      : count(rows), width(padded(e.D, kPanel)), out_width(padded(e.V, kPanel)), q(scaled), keys(seen) {
    for (int64_t i = 0; i < count; ++i)
      copy_scaled(queries + query(i) * e.D, e.D, e.scale, scaled + i * width, width);
  }
};

// The keys of span `span`: maxima and sums of the rows' weights, and weighted values [count][out_width]. `keys`
// [kTileKeys][the larger width] and `scores` [count][kTileKeys] are scratch. Of `source`:
//   has(s, block)          whether keys [s, s + block), of one tile of keys, are there
//   segments()             of the keys, or null
//   pack(s, block, keys)   as pack_keys
//   values(s, block, keys) as KeyRows
template <class Source>
void attend_span(const AttentionShape& e, const Source& source, const RowTile& tile, int64_t span,
                 float* keys, float* scores, float* top, float* sum, float* out) {
  const TileKeys& seen = tile.keys;
  const int64_t width = tile.width, out_width = tile.out_width;
  const int64_t begin = std::max(span * kSpanKeys, seen.least / kTileKeys * kTileKeys);
  const int64_t end = std::min((span + 1) * kSpanKeys, seen.most);
  const bool edits = e.edits_scores();
  const int32_t* const segments = source.segments();
  for (int64_t i = 0; i < tile.count; ++i) {
    top[i] = -std::numeric_limits<float>::infinity();
    sum[i] = 0;
  }
  bool is_begun = false;
  for (int64_t s = begin; s < end; s += kTileKeys) {
    const int64_t block = std::min(kTileKeys, end - s);
    if (!source.has(s, block) || (edits && !seen.meets(s, block, segments))) continue;
    source.pack(s, block, keys);
    tile_product(tile.count, padded(block, kPanel), e.D, tile.q, width, 1, keys, kTileKeys, scores, kTileKeys,
                 false);
    for (int64_t i = 0; i < tile.count; ++i) {
      float* const row = scores + i * kTileKeys;
      int64_t count = std::min(kTileKeys, seen.end[i] - s);
      if (edits && count > 0 &&
          !edit_scores(e.softcap, std::max<int64_t>(seen.from[i] - s, 0), count,
                       segments == nullptr ? nullptr : segments + s, seen.segment[i], row))
        count = 0;
      const float shrink = online_softmax(row, count, top[i], sum[i]);
      if (is_begun && shrink != 1)
        copy_scaled(out + i * out_width, out_width, shrink, out + i * out_width, out_width);
    }
    const KeyRows values = source.values(s, block, keys);
    tile_product(tile.count, out_width, block, scores, kTileKeys, 1, values.data, values.stride, out,
                 out_width, is_begun);
    is_begun = true;
  }
  if (!is_begun) std::fill_n(out, tile.count * out_width, 0.0f);
}

// Merges what a span gives, in `part`, with what those before it give.
inline HWY_NOINLINE void merge_span(const RowTile& tile, const float* part_top, const float* part_sum,
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

// The rows' results, from sums over all keys; row i is number query(i) of `results`, and of `lse` unless that is null.
template <class Query>
void store_rows(const AttentionShape& e, const RowTile& tile, Query query, const float* top, const float* sum,
                const float* out, float* results, float* lse) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < tile.count; ++i) {
    const int64_t row = query(i);
    const bool sees = top[i] != kNone;
    copy_scaled(out + i * tile.out_width, e.V, sees ? 1 / sum[i] : 0.0f, results + row * e.V, e.V);
    if (lse != nullptr) lse[row] = sees ? top[i] + std::log(sum[i]) : kNone;
  }
}

// Floats of scratch that attend_tile wants, for tiles of kTileQueries rows.
inline int64_t tile_scratch_floats(const AttentionShape& e) {
  const int64_t of_out = kTileQueries * padded(e.V, kPanel);
  return 2 * of_out + std::max(kTileQueries * padded(e.D, kPanel), of_out) + kTileQueries * kTileKeys;
}

// All keys of a tile, span after span.
template <class Source, class Query>
void attend_tile(const AttentionShape& e, const Source& source, const RowTile& tile, Query query,
                 Scratch& scratch, float* results, float* lse) {
  const int64_t of_out = kTileQueries * tile.out_width;
  float* const out = scratch.floats(of_out);
  float* const part = scratch.floats(of_out);
  float* const keys = scratch.floats(std::max(kTileQueries * tile.width, of_out));
  float* const scores = scratch.floats(kTileQueries * kTileKeys);
  float top[kTileQueries], sum[kTileQueries], part_top[kTileQueries], part_sum[kTileQueries];
  const TileKeys& seen = tile.keys;
  attend_span(e, source, tile, seen.first_span(), keys, scores, top, sum, out);
  for (int64_t span = seen.first_span() + 1; span < seen.end_span(); ++span) {
    attend_span(e, source, tile, span, keys, scores, part_top, part_sum, part);
    merge_span(tile, part_top, part_sum, part, top, sum, out);
  }
  store_rows(e, tile, query, top, sum, out, results, lse);
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
