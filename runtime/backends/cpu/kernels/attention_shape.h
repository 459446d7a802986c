// AttentionShape: sizes of attention in tiles of 64 rows and 64 keys. Rows of a tile are (position, head of the
// group) pairs, so that grouped queries share each key block.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "graph/base/text.h"
#include "runtime/backends/cpu/cpu_kernel.h"
#include "runtime/backends/cpu/kernels/attention_mask.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

namespace tessera::cpu {

inline constexpr int64_t kTileQueries = 64;  // queries of a tile
inline constexpr int64_t kTileKeys = 64;     // keys of a tile
// Keys that are summed from zero, then merged with those before them.
inline constexpr int64_t kSpanKeys = 128;
inline constexpr int64_t kMaxHead = 512;  // D and V: the tiles of a task are at most 1.1 MiB

struct AttentionShape {
  int64_t B, T, H, S, KV, D, V;  // V: width of values and results
  AttentionMask mask;
  float scale, softcap;
  bool has_segments;

  int64_t group() const { return H / KV; }
  int64_t rows() const { return T * group(); }  // queries that share a key-value head
  int64_t tiles() const { return (rows() + kTileQueries - 1) / kTileQueries; }
  int64_t key_blocks() const { return (S + kTileKeys - 1) / kTileKeys; }
  int64_t spans() const { return (S + kSpanKeys - 1) / kSpanKeys; }
  // Row r of key-value head `kv`: position r / group, head kv * group + r % group.
  int64_t query(int64_t b, int64_t kv, int64_t r) const {
    return (b * T + r / group()) * H + kv * group() + r % group();
  }
  int64_t key(int64_t b, int64_t s, int64_t kv) const { return (b * S + s) * KV + kv; }
  // Keys that row r sees, of its own segment where there are segments.
  AttentionMask::Keys keys(int64_t r) const { return mask.keys(r / group()); }
  // Whether scores are capped, or masked elsewhere than behind the last key that a row sees.
  bool edits_scores() const { return softcap > 0 || mask.window > 0 || has_segments; }
};

// Checks widths and heads, and sets the scale; kUnsupported for heads too wide for a tile.
inline Status finish_shape(AttentionShape& e, const KernelSpec& spec, int64_t most = kMaxHead) {
  for (const int64_t width : {e.D, e.V})
    if (width < 1 || width > most)
      return Status(StatusCode::kUnsupported, format("head size {}: tiles hold 1 to {}", width, most));
  if (e.KV == 0 && e.H > 0) return Status(StatusCode::kUnsupported, "no key-value heads");
  const double scale = spec.f64("scale");
  e.scale = static_cast<float>(scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(e.D)));
  return {};
}

// The shape given by operands number `q` [B, T, H, D], `k` [B, S, KV, D] and `v` [B, S, KV, V]; kUnsupported for heads
// too wide for a tile.
inline Result<AttentionShape> attention_shape(const KernelSpec& spec, int q, int k, int v, bool causal) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const auto query = spec.input_dims(q), key = spec.input_dims(k);
  AttentionShape e{query[0],
                   query[1],
                   query[2],
                   key[1],
                   key[2],
                   query[3],
                   spec.input_dims(v)[3],
                   attention_mask(spec, key[1], causal),
                   0,
                   static_cast<float>(spec.f64("softcap")),
                   false};
  TSR_RETURN_IF_ERROR(finish_shape(e, spec));
  return e;
}

// TileKeys: ranges of keys that the rows [begin, begin + count) of a key-value head see; at most kTileQueries rows.
struct TileKeys {
  int64_t from[kTileQueries], end[kTileQueries];  // by row; both 0 for none
  int32_t segment[kTileQueries] = {};             // where there are segments
  int64_t least = 0, most = 0;                    // of all: the first key, and behind the last
  int32_t low = std::numeric_limits<int32_t>::max(), high = std::numeric_limits<int32_t>::min();  // segments

  // `segments` [T] of the queries, or null.
  TileKeys(const AttentionShape& e, int64_t begin, int64_t count, const int32_t* segments)
      : TileKeys(count, [&](int64_t i) { return e.keys(begin + i); }) {
    if (segments == nullptr) return;
    for (int64_t i = 0; i < count; ++i) {
      if (from[i] == end[i]) continue;
      segment[i] = segments[(begin + i) / e.group()];
      low = std::min(low, segment[i]);
      high = std::max(high, segment[i]);
    }
  }
  // `keys_of(i)`: the keys of row i.
  template <class KeysOf>
  TileKeys(int64_t count, KeysOf keys_of) {
    for (int64_t i = 0; i < count; ++i) {
      const AttentionMask::Keys keys = keys_of(i);
      from[i] = keys.begin;
      end[i] = keys.end;
      if (keys.begin == keys.end) continue;
      least = most == 0 ? keys.begin : std::min(least, keys.begin);
      most = std::max(most, keys.end);
    }
  }

  // Whether a row may see one of the keys [s, s + count). `segments` [S] of the keys, or null.
  bool meets(int64_t s, int64_t count, const int32_t* segments) const {
    if (s >= most || s + count <= least) return false;
    if (segments == nullptr) return true;
    const auto [first, last] = std::minmax_element(segments + s, segments + s + count);
    return *first <= high && *last >= low;
  }
  int64_t first_span() const { return least / kSpanKeys; }
  int64_t end_span() const { return std::max(first_span() + 1, (most + kSpanKeys - 1) / kSpanKeys); }
};

// `of_keys`, `of_values`: products of a pair with D and with V elements.
inline PreparedKernel prepared_attention(const AttentionShape& e, std::unique_ptr<Kernel> kernel,
                                         double of_keys, double of_values) {
  const int64_t most =
      e.mask.window > 0 ? std::min(e.S, e.mask.causal ? e.mask.window : 2 * e.mask.window) : e.S;
  const double pairs = static_cast<double>(e.B * e.H) * static_cast<double>(e.T) * static_cast<double>(most);
  const bool is_half = e.mask.causal && e.T == e.S && most == e.S;
  PreparedKernel prepared;
  prepared.kernel = std::move(kernel);
  prepared.flops = 2 * pairs * (of_keys * static_cast<double>(e.D) + of_values * static_cast<double>(e.V)) *
                   (is_half ? 0.5 : 1);
  prepared.bytes = 4.0 * static_cast<double>(e.D + e.V) * static_cast<double>(e.B * (e.T * e.H + e.S * e.KV));
  prepared.efficiency = 0.5;
  return prepared;
}

}  // namespace tessera::cpu
