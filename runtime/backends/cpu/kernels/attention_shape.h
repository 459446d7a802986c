// AttentionShape: sizes of attention in tiles of 64 rows and 64 keys. Rows of a tile are (position, head of the
// group) pairs, so that grouped queries share each key block.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "graph/base/text.h"
#include "runtime/backends/cpu/cpu_kernel.h"
#include "runtime/backends/cpu/factor_index.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

namespace tessera::cpu {

inline constexpr int64_t kTileQueries = 64;  // queries of a tile
inline constexpr int64_t kTileKeys = 64;     // keys of a tile
// Keys that are summed from zero, then merged with those before them.
inline constexpr int64_t kSpanKeys = 128;
inline constexpr int64_t kMaxHead = 256;  // D: the tiles of a task are at most 545 KiB

struct AttentionShape {
  int64_t B, T, H, S, KV, D;
  bool causal;
  float scale;
  FactorIndex t_index, s_index;

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
  // Keys that row r sees: those before the result.
  int64_t visible(int64_t r, int64_t start) const {
    return causal ? s_index.count_before(start + t_index.to_global(r / group()) + 1) : S;
  }
};

// The shape given by operands number `q` [B, T, H, D] and `k` [B, S, KV, D]; kUnsupported for heads too wide for a
// tile.
inline Result<AttentionShape> attention_shape(const KernelSpec& spec, int q, int k) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const auto query = spec.input_dims(q), key = spec.input_dims(k);
  AttentionShape e{query[0],
                   query[1],
                   query[2],
                   key[1],
                   key[2],
                   query[3],
                   true,
                   0,
                   FactorIndex(spec.factor('t')),
                   FactorIndex(spec.factor('s'))};
  if (e.D < 1 || e.D > kMaxHead)
    return Status(StatusCode::kUnsupported, format("head size {}: tiles hold 1 to {}", e.D, kMaxHead));
  if (e.KV == 0 && e.H > 0) return Status(StatusCode::kUnsupported, "no key-value heads");
  const double scale = spec.f64("scale");
  e.scale = static_cast<float>(scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(e.D)));
  return e;
}

inline PreparedKernel prepared_attention(const AttentionShape& e, std::unique_ptr<Kernel> kernel,
                                         double products) {
  const double pairs = static_cast<double>(e.B * e.H) * static_cast<double>(e.T) * static_cast<double>(e.S);
  PreparedKernel prepared;
  prepared.kernel = std::move(kernel);
  prepared.flops = products * 2 * pairs * static_cast<double>(e.D) * (e.causal && e.T == e.S ? 0.5 : 1);
  prepared.bytes =
      4.0 * static_cast<double>(e.D) * static_cast<double>(e.B * (2 * e.T * e.H + 2 * e.S * e.KV));
  prepared.efficiency = 0.5;
  return prepared;
}

}  // namespace tessera::cpu
