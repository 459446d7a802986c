// attention, attention_grad and attention_cached in f32 by tiles of 64 rows and 64 keys, which never leave
// the caches (Dao et al., "FlashAttention", 2022; Dao, "FlashAttention-2", 2023). Rows of a tile are
// (position, head of the group) pairs, so that grouped queries share each key block; tiles wholly above the
// diagonal are not visited.
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/backends/cpu/factor_index.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/attention_flash.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/gemm_micro-inl.h"
#include "runtime/backends/cpu/kernels/vector_math-inl.h"

#ifndef TSR_ATTENTION_FLASH_CC_ONCE_
#define TSR_ATTENTION_FLASH_CC_ONCE_
namespace tessera::cpu {
namespace {

constexpr int64_t kTileRows = 64;  // queries of a tile
constexpr int64_t kTileKeys = 64;  // keys of a tile
constexpr int64_t kMaxHead = 256;  // D: the tiles of a task are at most 545 KiB
constexpr int64_t kDirectRows =
    1;  // up to this many queries per key-value head keys are read in place, unpacked

struct AttentionShape {
  int64_t B, T, H, S, KV, D;
  bool causal;
  float scale;
  FactorIndex t_index, s_index;

  int64_t group() const { return H / KV; }
  int64_t rows() const { return T * group(); }  // queries that share a key-value head
  int64_t tiles() const { return (rows() + kTileRows - 1) / kTileRows; }
  int64_t key_blocks() const { return (S + kTileKeys - 1) / kTileKeys; }
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

struct AttentionBuffers {
  const float *q, *k, *v;
  const int32_t* start;  // [B] or null
  float *out, *lse;      // lse may be null
};

struct AttentionGradBuffers {
  const float *dout, *q, *k, *v, *out, *lse;
  float *dq, *dk, *dv;
  float* delta;  // [B, T, H]: rowsum(dout * out)
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

inline constexpr int kPanel = 2 * kLanes;  // columns of a product below; tile extents are multiples of it

// C[rows, columns] (+)= A · B for tiles: rows a multiple of MR, columns of two vectors.
HWY_NOINLINE void tile_product(int64_t rows, int64_t columns, int64_t k_count, const float* a, int64_t a_row,
                               int64_t a_col, const float* b, int64_t ldb, float* c, int64_t ldc,
                               bool accumulate) {
  for (int64_t j = 0; j < columns; j += kPanel)
    for (int64_t i = 0; i < rows; i += kMR)
      micro_kernel<kMR, 2, false>(k_count, a + i * a_row, a_row, a_col, b + j, ldb, c + i * ldc + j, ldc,
                                  accumulate);
}

int64_t padded(int64_t extent, int64_t unit) { return (extent + unit - 1) / unit * unit; }

// out[0, width) = factor * in[0, count), zero from count on.
void copy_scaled(const float* in, int64_t count, float factor, float* out, int64_t width) {
  const DF d;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, in + i), hn::Set(d, factor)), d, out + i);
  for (; i < count; ++i) out[i] = in[i] * factor;
  for (; i < width; ++i) out[i] = 0;
}

float dot(const float* a, const float* b, int64_t count) {
  const DF d;
  VF sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, a + i + kLanes), hn::LoadU(d, b + i + kLanes), sum1);
  }
  for (; i + kLanes <= count; i += kLanes) sum0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum0);
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// y[0, count) += factor * x[0, count)
void add_scaled(float factor, const float* x, float* y, int64_t count) {
  const DF d;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    hn::StoreU(hn::MulAdd(hn::Set(d, factor), hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  for (; i < count; ++i) y[i] += factor * x[i];
}

// A block of keys or values: `count` rows of D, `stride` apart, as [D][kTileKeys], zero past count.
void pack_keys(const float* in, int64_t stride, int64_t count, int64_t D, float* out) {
  const DF d;
  int64_t s = 0;
  for (; s + kLanes <= count; s += kLanes) pack_transposed(d, in + s * stride, stride, D, out + s, kTileKeys);
  if (s == kTileKeys) return;
  for (int64_t k = 0; k < D; ++k)
    for (int64_t i = s; i < kTileKeys; ++i) out[k * kTileKeys + i] = i < count ? in[i * stride + k] : 0.0f;
}

// Rows of keys or values as the right operand of a product: in place, or a zero-padded copy when D is no
// multiple of a panel.
struct KeyRows {
  const float* data;
  int64_t stride;
  KeyRows(const float* in, int64_t in_stride, int64_t count, int64_t D, int64_t width, float* copy)
      : data(in), stride(in_stride) {
    if (D == width) return;
    for (int64_t s = 0; s < count; ++s) copy_scaled(in + s * in_stride, D, 1, copy + s * width, width);
    data = copy;
    stride = width;
  }
};

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

// Tile `tile` of the rows of (b, kv).
void attend_tile(const AttentionShape& e, const AttentionBuffers& x, const Pool& pool, int64_t b, int64_t kv,
                 int64_t tile) {
  const int64_t width = padded(e.D, kPanel), key_stride = e.KV * e.D;
  const int64_t begin = tile * kTileRows, count = std::min(kTileRows, e.rows() - begin);
  const int64_t rows = padded(count, kMR);
  const int64_t start = x.start == nullptr ? 0 : x.start[b];
  const int64_t wide = kTileRows * width;  // of a tile of 64 rows, queries' or keys'
  Scratch scratch(pool, 3 * wide + kTileRows * kTileKeys);
  float* const q = scratch.floats(wide);
  float* const out = scratch.floats(wide);
  float* const keys = scratch.floats(wide);
  float* const scores = scratch.floats(kTileRows * kTileKeys);
  int64_t visible[kTileRows], most = 0;
  float top[kTileRows], sum[kTileRows];
  for (int64_t i = 0; i < rows; ++i) {
    visible[i] = i < count ? e.visible(begin + i, start) : 0;
    most = std::max(most, visible[i]);
    top[i] = -std::numeric_limits<float>::infinity();
    sum[i] = 0;
    if (i < count) {
      copy_scaled(x.q + e.query(b, kv, begin + i) * e.D, e.D, e.scale, q + i * width, width);
    } else {
      std::fill_n(q + i * width, width, 0.0f);
    }
  }
  std::fill_n(out, rows * width, 0.0f);
  for (int64_t s = 0; s < most; s += kTileKeys) {
    const int64_t block = std::min(kTileKeys, most - s);
    const int64_t first = e.key(b, s, kv) * e.D;
    pack_keys(x.k + first, key_stride, block, e.D, keys);
    tile_product(rows, padded(block, kPanel), e.D, q, width, 1, keys, kTileKeys, scores, kTileKeys, false);
    for (int64_t i = 0; i < rows; ++i) {
      const float shrink =
          online_softmax(scores + i * kTileKeys, std::min(kTileKeys, visible[i] - s), top[i], sum[i]);
      if (s > 0 && shrink != 1) copy_scaled(out + i * width, width, shrink, out + i * width, width);
    }
    const KeyRows values(x.v + first, key_stride, block, e.D, width, keys);
    tile_product(rows, width, block, scores, kTileKeys, 1, values.data, values.stride, out, width, true);
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = e.query(b, kv, begin + i);
    copy_scaled(out + i * width, e.D, visible[i] > 0 ? 1 / sum[i] : 0.0f, x.out + row * e.D, e.D);
    if (x.lse != nullptr)
      x.lse[row] = visible[i] > 0 ? top[i] + std::log(sum[i]) : -std::numeric_limits<float>::infinity();
  }
}

// All rows of (b, kv), at most kDirectRows: every key and value is read once.
void attend_direct(const AttentionShape& e, const AttentionBuffers& x, int64_t b, int64_t kv) {
  const int64_t rows = e.rows(), key_stride = e.KV * e.D;
  const int64_t start = x.start == nullptr ? 0 : x.start[b];
  alignas(64) float out[kDirectRows * kMaxHead];
  alignas(64) float scores[kDirectRows * kTileKeys];
  int64_t visible[kDirectRows], most = 0;
  float top[kDirectRows], sum[kDirectRows];
  for (int64_t i = 0; i < rows; ++i) {
    visible[i] = e.visible(i, start);
    most = std::max(most, visible[i]);
    top[i] = -std::numeric_limits<float>::infinity();
    sum[i] = 0;
  }
  std::fill_n(out, rows * e.D, 0.0f);
  for (int64_t s = 0; s < most; s += kTileKeys) {
    const int64_t block = std::min(kTileKeys, most - s);
    const float* k = x.k + e.key(b, s, kv) * e.D;
    const float* v = x.v + e.key(b, s, kv) * e.D;
    for (int64_t j = 0; j < block; ++j)
      for (int64_t i = 0; i < rows; ++i)
        scores[i * kTileKeys + j] = e.scale * dot(x.q + e.query(b, kv, i) * e.D, k + j * key_stride, e.D);
    for (int64_t i = 0; i < rows; ++i) {
      const float shrink =
          online_softmax(scores + i * kTileKeys, std::min(kTileKeys, visible[i] - s), top[i], sum[i]);
      if (s > 0 && shrink != 1) copy_scaled(out + i * e.D, e.D, shrink, out + i * e.D, e.D);
    }
    for (int64_t j = 0; j < block; ++j)
      for (int64_t i = 0; i < rows; ++i)
        if (s + j < visible[i]) add_scaled(scores[i * kTileKeys + j], v + j * key_stride, out + i * e.D, e.D);
  }
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = e.query(b, kv, i);
    copy_scaled(out + i * e.D, e.D, visible[i] > 0 ? 1 / sum[i] : 0.0f, x.out + row * e.D, e.D);
    if (x.lse != nullptr)
      x.lse[row] = visible[i] > 0 ? top[i] + std::log(sum[i]) : -std::numeric_limits<float>::infinity();
  }
}

void attention(const AttentionShape& e, const AttentionBuffers& x, const Pool& pool) {
  if (e.B * e.T * e.H == 0) return;
  if (e.rows() <= kDirectRows) {
    pool.parallel_for(e.B * e.KV, [&](int64_t task) { attend_direct(e, x, task / e.KV, task % e.KV); });
  } else {
    const int64_t tiles = e.tiles();
    // The last tiles see the most keys: they go first.
    pool.parallel_for(e.B * e.KV * tiles, [&](int64_t task) {
      const int64_t pair = task % (e.B * e.KV);
      attend_tile(e, x, pool, pair / e.KV, pair % e.KV, tiles - 1 - task / (e.B * e.KV));
    });
  }
}

// Adds the pairs of row tiles [tile_begin, tile_end) and key blocks [block_begin, block_end) of (b, kv) to dq
// (unless null), and to dk and dv (unless null). The two halves of the sums are formed in ascending order of
// tile and block.
void attend_grad(const AttentionShape& e, const AttentionGradBuffers& x, const Pool& pool, int64_t b,
                 int64_t kv, int64_t tile_begin, int64_t tile_end, int64_t block_begin, int64_t block_end,
                 bool want_dq, bool want_dkv) {
  const DF d;
  const int64_t width = padded(e.D, kPanel), key_stride = e.KV * e.D;
  const int64_t wide = kTileRows * width;  // of a tile of 64 rows, queries' or keys'
  Scratch scratch(pool, 8 * wide + 2 * kTileRows * kTileKeys);
  float* const q = scratch.floats(wide);
  float* const dout = scratch.floats(wide);
  float* const dq = scratch.floats(wide);
  float* const keys = scratch.floats(wide);
  float* const values = scratch.floats(wide);
  float* const key_copy = scratch.floats(wide);
  float* const dk = scratch.floats(wide);
  float* const dv = scratch.floats(wide);
  float* const p = scratch.floats(kTileRows * kTileKeys);
  float* const ds = scratch.floats(kTileRows * kTileKeys);
  for (int64_t key_block = block_begin; key_block < block_end; ++key_block) {
    const int64_t s = key_block * kTileKeys, block = std::min(kTileKeys, e.S - s);
    const int64_t first = e.key(b, s, kv) * e.D, block_rows = padded(block, kMR);
    pack_keys(x.k + first, key_stride, block, e.D, keys);
    pack_keys(x.v + first, key_stride, block, e.D, values);
    const KeyRows key_rows(x.k + first, key_stride, block, e.D, width, key_copy);
    if (want_dkv) {
      std::fill_n(dk, block_rows * width, 0.0f);
      std::fill_n(dv, block_rows * width, 0.0f);
    }
    for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
      const int64_t begin = tile * kTileRows, count = std::min(kTileRows, e.rows() - begin);
      const int64_t rows = padded(count, kMR);
      int64_t visible[kTileRows], most = 0;
      for (int64_t i = 0; i < rows; ++i) {
        visible[i] = i < count ? std::min(e.visible(begin + i, 0) - s, block) : 0;
        most = std::max(most, visible[i]);
      }
      if (most <= 0) continue;
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t at = e.query(b, kv, begin + i) * e.D;
        if (i < count) {
          copy_scaled(x.q + at, e.D, e.scale, q + i * width, width);
          copy_scaled(x.dout + at, e.D, 1, dout + i * width, width);
        } else {
          std::fill_n(q + i * width, width, 0.0f);
          std::fill_n(dout + i * width, width, 0.0f);
        }
      }
      const int64_t columns = padded(most, kPanel);
      tile_product(rows, columns, e.D, q, width, 1, keys, kTileKeys, p, kTileKeys, false);
      tile_product(rows, columns, e.D, dout, width, 1, values, kTileKeys, ds, kTileKeys, false);
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t row = e.query(b, kv, begin + std::min(i, count - 1));
        const VF lse = hn::Set(d, x.lse[row]), delta = hn::Set(d, x.delta[row]);
        for (int64_t j = 0; j < kTileKeys; j += kLanes) {
          const auto seen = hn::FirstN(d, static_cast<size_t>(std::max<int64_t>(visible[i] - j, 0)));
          VF weight = hn::Zero(d), slope = hn::Zero(d);
          if (j < visible[i]) {
            weight = hn::IfThenElseZero(seen, fast_exp(d, hn::Sub(hn::Load(d, p + i * kTileKeys + j), lse)));
            slope = hn::Mul(weight, hn::Sub(hn::Load(d, ds + i * kTileKeys + j), delta));
            slope = hn::IfThenElseZero(seen, slope);
          }
          hn::Store(weight, d, p + i * kTileKeys + j);
          hn::Store(slope, d, ds + i * kTileKeys + j);
        }
      }
      if (want_dkv) {
        tile_product(block_rows, width, rows, p, 1, kTileKeys, dout, width, dv, width, true);
        tile_product(block_rows, width, rows, ds, 1, kTileKeys, q, width, dk, width, true);
      }
      if (want_dq) {
        tile_product(rows, width, std::min(most, block), ds, kTileKeys, 1, key_rows.data, key_rows.stride, dq,
                     width, false);
        for (int64_t i = 0; i < count; ++i)
          add_scaled(e.scale, dq + i * width, x.dq + e.query(b, kv, begin + i) * e.D, e.D);
      }
    }
    if (want_dkv) {
      for (int64_t i = 0; i < block; ++i) {
        copy_scaled(dk + i * width, e.D, 1, x.dk + first + i * key_stride, e.D);
        copy_scaled(dv + i * width, e.D, 1, x.dv + first + i * key_stride, e.D);
      }
    }
  }
}

void attention_grad(const AttentionShape& e, const AttentionGradBuffers& x, const Pool& pool) {
  const int64_t queries = e.B * e.T * e.H;
  pool.parallel_ranges(queries, 256, [&](int64_t begin, int64_t end) {
    std::fill(x.dq + begin * e.D, x.dq + end * e.D, 0.0f);
    for (int64_t row = begin; row < end; ++row)
      x.delta[row] = dot(x.dout + row * e.D, x.out + row * e.D, e.D);
  });
  const int64_t pairs = e.B * e.KV, tiles = e.KV == 0 ? 0 : e.tiles(), blocks = e.key_blocks();
  if (pairs * blocks == 0) return;
  if (pairs >= 8) {  // enough to share out: the scores are formed once for all three gradients
    pool.parallel_for(pairs, [&](int64_t pair) {
      attend_grad(e, x, pool, pair / e.KV, pair % e.KV, 0, tiles, 0, blocks, true, true);
    });
    return;
  }
  pool.parallel_for(pairs * blocks, [&](int64_t task) {
    const int64_t pair = task % pairs, block = task / pairs;
    attend_grad(e, x, pool, pair / e.KV, pair % e.KV, 0, tiles, block, block + 1, false, true);
  });
  pool.parallel_for(pairs * tiles, [&](int64_t task) {
    const int64_t pair = task % pairs, tile = tiles - 1 - task / pairs;
    attend_grad(e, x, pool, pair / e.KV, pair % e.KV, tile, tile + 1, 0, blocks, true, false);
  });
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(attention);
HWY_EXPORT(attention_grad);

namespace {

Result<AttentionShape> attention_shape(const KernelSpec& spec, int q, int k) {
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

PreparedKernel prepared_attention(const AttentionShape& e, std::unique_ptr<Kernel> kernel, double products) {
  const double pairs = static_cast<double>(e.B * e.H) * static_cast<double>(e.T) * static_cast<double>(e.S);
  PreparedKernel prepared;
  prepared.kernel = std::move(kernel);
  prepared.flops = products * 2 * pairs * static_cast<double>(e.D) * (e.causal && e.T == e.S ? 0.5 : 1);
  prepared.bytes =
      4.0 * static_cast<double>(e.D) * static_cast<double>(e.B * (2 * e.T * e.H + 2 * e.S * e.KV));
  prepared.efficiency = 0.5;
  return prepared;
}

}  // namespace

// q [B, T, H, D], k, v [B, S, KV, D] -> out [B, T, H, D], lse [B, T, H]
Result<PreparedKernel> prepare_attention_flash(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(AttentionShape e, attention_shape(spec, 0, 1));
  e.causal = spec.i64("causal") == 1;
  return prepared_attention(e, make_kernel([e](const LaunchArgs& args) {
                              const AttentionBuffers x{args.in<float>(0),  args.in<float>(1),
                                                       args.in<float>(2),  nullptr,
                                                       args.out<float>(0), args.out<float>(1)};
                              HWY_DYNAMIC_DISPATCH(attention)(e, x, args.pool);
                            }),
                            2);
}

// q [B, T, H, D], k_cache, v_cache [B, S, KV, D], start [B] -> out [B, T, H, D]. `start` is untrusted:
// positions beyond the cache are not read, and a query before position 0 sees nothing.
Result<PreparedKernel> prepare_attention_cached_flash(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(const AttentionShape e, attention_shape(spec, 0, 1));
  return prepared_attention(e, make_kernel([e](const LaunchArgs& args) {
                              const AttentionBuffers x{args.in<float>(0),  args.in<float>(1),
                                                       args.in<float>(2),  args.in<int32_t>(3),
                                                       args.out<float>(0), nullptr};
                              HWY_DYNAMIC_DISPATCH(attention)(e, x, args.pool);
                            }),
                            2);
}

// dout, q [B, T, H, D], k, v [B, S, KV, D], out [B, T, H, D], lse [B, T, H] -> dq, dk, dv
Result<PreparedKernel> prepare_attention_grad_flash(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(AttentionShape e, attention_shape(spec, 1, 2));
  e.causal = spec.i64("causal") == 1;
  PreparedKernel prepared = prepared_attention(e, make_kernel([e](const LaunchArgs& args) {
                                                 const AttentionGradBuffers x{
                                                     args.in<float>(0),  args.in<float>(1),
                                                     args.in<float>(2),  args.in<float>(3),
                                                     args.in<float>(4),  args.in<float>(5),
                                                     args.out<float>(0), args.out<float>(1),
                                                     args.out<float>(2), static_cast<float*>(args.workspace)};
                                                 HWY_DYNAMIC_DISPATCH(attention_grad)(e, x, args.pool);
                                               }),
                                               5);
  prepared.workspace_bytes = e.B * e.T * e.H * static_cast<int64_t>(sizeof(float));
  return prepared;
}

}  // namespace tessera::cpu
#endif
