// attention_grad in f32 by tiles of 64 rows and 64 keys (Dao, "FlashAttention-2", 2023): the scores are formed
// again from the log of their sum.
#include <algorithm>

#include "runtime/backends/cpu/kernels/attention_shape.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/attention_grad_flash.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/attention_tiles-inl.h"
#include "runtime/backends/cpu/kernels/vector_math-inl.h"

#ifndef TSR_ATTENTION_GRAD_FLASH_CC_ONCE_
#define TSR_ATTENTION_GRAD_FLASH_CC_ONCE_
namespace tessera::cpu {
namespace {

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

// Adds the pairs of row tiles [tile_begin, tile_end) and key blocks [block_begin, block_end) of (b, kv) to dq
// (unless null), and to dk and dv (unless null). The two halves of the sums are formed in ascending order of
// tile and block.
void attend_grad(const AttentionShape& e, const AttentionGradBuffers& x, const Pool& pool, int64_t b,
                 int64_t kv, int64_t tile_begin, int64_t tile_end, int64_t block_begin, int64_t block_end,
                 bool want_dq, bool want_dkv) {
  const DF d;
  const int64_t width = padded(e.D, kPanel), key_stride = e.KV * e.D;
  const int64_t wide = kTileQueries * width;  // of a tile of 64 rows, queries' or keys'
  Scratch scratch(pool, 8 * wide + 2 * kTileQueries * kTileKeys);
  float* const q = scratch.floats(wide);
  float* const dout = scratch.floats(wide);
  float* const dq = scratch.floats(wide);
  float* const keys = scratch.floats(wide);
  float* const values = scratch.floats(wide);
  float* const key_copy = scratch.floats(wide);
  float* const dk = scratch.floats(wide);
  float* const dv = scratch.floats(wide);
  float* const p = scratch.floats(kTileQueries * kTileKeys);
  float* const ds = scratch.floats(kTileQueries * kTileKeys);
  for (int64_t key_block = block_begin; key_block < block_end; ++key_block) {
    const int64_t s = key_block * kTileKeys, block = std::min(kTileKeys, e.S - s);
    const int64_t first = e.key(b, s, kv) * e.D, block_rows = padded(block, kMR);
    pack_keys(x.k + first, key_stride, block, e.S - s, e.D, keys);
    pack_keys(x.v + first, key_stride, block, e.S - s, e.D, values);
    const KeyRows key_rows(x.k + first, key_stride, block, e.D, width, key_copy);
    if (want_dkv) {
      std::fill_n(dk, block_rows * width, 0.0f);
      std::fill_n(dv, block_rows * width, 0.0f);
    }
    for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
      const int64_t begin = tile * kTileQueries, count = std::min(kTileQueries, e.rows() - begin);
      const int64_t rows = padded(count, kMR);
      int64_t visible[kTileQueries], most = 0;
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

HWY_EXPORT(attention_grad);

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
