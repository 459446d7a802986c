// attention_grad in f32 by tiles of 64 rows and 64 keys (Dao, "FlashAttention-2", 2023): the scores are formed
// again from the log of their sum.
#include <algorithm>
#include <limits>
#include <optional>

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
  const float *dout, *q, *k, *v, *out, *lse, *dlse;  // dlse may be null
  const int32_t *q_segment, *k_segment;              // both may be null
  float *dq, *dk, *dv;
  float* delta;  // [B, T, H]: rowsum(dout * out) - dlse
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// Turns the scores of a row into weights and dout . v, in `ds`, into gradients of scores; both are zero outside of
// [from, end). With edited scores, -inf stands for keys that are not seen.
template <bool kEdited>
void weigh_row(int64_t from, int64_t end, float lse, float delta, float softcap, float* p, float* ds) {
  const DF d;
  for (int64_t j = 0; j < kTileKeys; j += kLanes) {
    VF weight = hn::Zero(d), slope = hn::Zero(d);
    if (j < end && j + kLanes > from) {
      const VF score = hn::Load(d, p + j);
      auto seen = hn::FirstN(d, static_cast<size_t>(end - j));
      if constexpr (kEdited)
        seen = hn::And(seen, hn::Ne(score, hn::Set(d, -std::numeric_limits<float>::infinity())));
      weight = hn::IfThenElseZero(seen, fast_exp(d, hn::Sub(score, hn::Set(d, lse))));
      slope = hn::Mul(weight, hn::Sub(hn::Load(d, ds + j), hn::Set(d, delta)));
      if constexpr (kEdited) {
        if (softcap > 0) {
          const VF share = hn::Mul(score, hn::Set(d, 1 / softcap));
          slope = hn::Mul(slope, hn::NegMulAdd(share, share, hn::Set(d, 1.0f)));
        }
      }
      slope = hn::IfThenElseZero(seen, slope);
    }
    hn::Store(weight, d, p + j);
    hn::Store(slope, d, ds + j);
  }
}

// Adds the pairs of row tiles [tile_begin, tile_end) and key blocks [block_begin, block_end) of (b, kv) to dq
// (unless null), and to dk and dv (unless null). The two halves of the sums are formed in ascending order of
// tile and block.
void attend_grad(const AttentionShape& e, const AttentionGradBuffers& x, const Pool& pool, int64_t b,
                 int64_t kv, int64_t tile_begin, int64_t tile_end, int64_t block_begin, int64_t block_end,
                 bool want_dq, bool want_dkv) {
  const int64_t width = padded(e.D, kPanel), v_width = padded(e.V, kPanel);
  const int64_t of_k = kTileQueries * width, of_v = kTileQueries * v_width;  // of a tile of 64 rows
  Scratch scratch(pool, 5 * of_k + 3 * of_v + 2 * kTileQueries * kTileKeys);
  float* const q = scratch.floats(of_k);
  float* const dout = scratch.floats(of_v);
  float* const dq = scratch.floats(of_k);
  float* const keys = scratch.floats(of_k);
  float* const values = scratch.floats(of_v);
  float* const key_copy = scratch.floats(of_k);
  float* const dk = scratch.floats(of_k);
  float* const dv = scratch.floats(of_v);
  float* const p = scratch.floats(kTileQueries * kTileKeys);
  float* const ds = scratch.floats(kTileQueries * kTileKeys);
  const int32_t* const q_segments = x.q_segment == nullptr ? nullptr : x.q_segment + b * e.T;
  const int32_t* const k_segments = x.k_segment == nullptr ? nullptr : x.k_segment + b * e.S;
  const bool edits = e.edits_scores();
  for (int64_t key_block = block_begin; key_block < block_end; ++key_block) {
    const int64_t s = key_block * kTileKeys, block = std::min(kTileKeys, e.S - s);
    const int64_t first = e.key(b, s, kv), block_rows = padded(block, kMR);
    const auto pack = [&] {
      pack_keys(x.k + first * e.D, e.KV * e.D, block, e.S - s, e.D, keys);
      pack_keys(x.v + first * e.V, e.KV * e.V, block, e.S - s, e.V, values);
      return KeyRows(x.k + first * e.D, e.KV * e.D, block, e.D, width, key_copy);
    };
    std::optional<KeyRows> key_rows;  // once they are packed
    if (want_dkv) {
      std::fill_n(dk, block_rows * width, 0.0f);
      std::fill_n(dv, block_rows * v_width, 0.0f);
    }
    for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
      const int64_t begin = tile * kTileQueries, count = std::min(kTileQueries, e.rows() - begin);
      const int64_t rows = padded(count, kMR);
      const TileKeys seen(e, begin, count, q_segments);
      if (!seen.meets(s, block, k_segments)) continue;
      if (!key_rows) key_rows = pack();
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t at = e.query(b, kv, begin + i);
        if (i < count) {
          copy_scaled(x.q + at * e.D, e.D, e.scale, q + i * width, width);
          copy_scaled(x.dout + at * e.V, e.V, 1, dout + i * v_width, v_width);
        } else {
          std::fill_n(q + i * width, width, 0.0f);
          std::fill_n(dout + i * v_width, v_width, 0.0f);
        }
      }
      const int64_t most = std::min(seen.most - s, block), columns = padded(most, kPanel);
      tile_product(rows, columns, e.D, q, width, 1, keys, kTileKeys, p, kTileKeys, false);
      tile_product(rows, columns, e.V, dout, v_width, 1, values, kTileKeys, ds, kTileKeys, false);
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t row = e.query(b, kv, begin + std::min(i, count - 1));
        float *const p_row = p + i * kTileKeys, *const ds_row = ds + i * kTileKeys;
        int64_t end = i < count ? std::min(seen.end[i] - s, block) : 0;
        if (!edits || end <= 0) {
          weigh_row<false>(0, end, x.lse[row], x.delta[row], 0, p_row, ds_row);
          continue;
        }
        const int64_t from = std::max<int64_t>(seen.from[i] - s, 0);
        if (!edit_scores(e.softcap, from, end, k_segments == nullptr ? nullptr : k_segments + s,
                         seen.segment[i], p_row))
          end = 0;
        weigh_row<true>(from, end, x.lse[row], x.delta[row], e.softcap, p_row, ds_row);
      }
      if (want_dkv) {
        tile_product(block_rows, v_width, rows, p, 1, kTileKeys, dout, v_width, dv, v_width, true);
        tile_product(block_rows, width, rows, ds, 1, kTileKeys, q, width, dk, width, true);
      }
      if (want_dq) {
        tile_product(rows, width, most, ds, kTileKeys, 1, key_rows->data, key_rows->stride, dq, width, false);
        for (int64_t i = 0; i < count; ++i)
          add_scaled(e.scale, dq + i * width, x.dq + e.query(b, kv, begin + i) * e.D, e.D);
      }
    }
    if (want_dkv) {
      for (int64_t i = 0; i < block; ++i) {
        const int64_t at = first + i * e.KV;
        copy_scaled(dk + i * width, e.D, 1, x.dk + at * e.D, e.D);
        copy_scaled(dv + i * v_width, e.V, 1, x.dv + at * e.V, e.V);
      }
    }
  }
}

void attention_grad(const AttentionShape& e, const AttentionGradBuffers& x, const Pool& pool) {
  const int64_t queries = e.B * e.T * e.H;
  pool.parallel_ranges(queries, 256, [&](int64_t begin, int64_t end) {
    std::fill(x.dq + begin * e.D, x.dq + end * e.D, 0.0f);
    for (int64_t row = begin; row < end; ++row) {
      x.delta[row] = dot(x.dout + row * e.V, x.out + row * e.V, e.V);
      if (x.dlse != nullptr) x.delta[row] -= x.dlse[row];
    }
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

// dout [B, T, H, V], q [B, T, H, D], k [B, S, KV, D], v [B, S, KV, V], out [B, T, H, V], lse [B, T, H]
// (, q_segment [B, T], k_segment [B, S]) (, dlse [B, T, H]) -> dq, dk, dv
Result<PreparedKernel> prepare_attention_grad_flash(const KernelSpec& spec) {
  TSR_ASSIGN_OR_RETURN(AttentionShape e, attention_shape(spec, 1, 2, 3, spec.i64("causal") == 1));
  const int count = spec.input_count();
  e.has_segments = count >= 8;
  PreparedKernel prepared =
      prepared_attention(e, make_kernel([e, count](const LaunchArgs& args) {
                           const AttentionGradBuffers x{args.in<float>(0),
                                                        args.in<float>(1),
                                                        args.in<float>(2),
                                                        args.in<float>(3),
                                                        args.in<float>(4),
                                                        args.in<float>(5),
                                                        count % 2 == 1 ? args.in<float>(count - 1) : nullptr,
                                                        e.has_segments ? args.in<int32_t>(6) : nullptr,
                                                        e.has_segments ? args.in<int32_t>(7) : nullptr,
                                                        args.out<float>(0),
                                                        args.out<float>(1),
                                                        args.out<float>(2),
                                                        static_cast<float*>(args.workspace)};
                           HWY_DYNAMIC_DISPATCH(attention_grad)(e, x, args.pool);
                         }),
                         3, 2);
  prepared.workspace_bytes = e.B * e.T * e.H * static_cast<int64_t>(sizeof(float));
  return prepared;
}

}  // namespace tessera::cpu
#endif
