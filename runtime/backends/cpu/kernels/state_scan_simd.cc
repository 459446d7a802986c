// Scans of tokens in f32. Columns of a state are independent: a task has 32 of a head and keeps them in L1 for all of its
// tokens, with two passes over them a token. A column's sums are added in one order, whatever the step that a token comes in.
#include <algorithm>
#include <cstddef>

#include "runtime/backends/cpu/kernels/recurrent_kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/kernels/row_tokens.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"
#include "runtime/backends/cpu/kernels/state_scan_shape.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/state_scan_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/rows-inl.h"
#include "runtime/backends/cpu/kernels/vector_math-inl.h"

#ifndef TSR_STATE_SCAN_SIMD_CC_ONCE_
#define TSR_STATE_SCAN_SIMD_CC_ONCE_
namespace tessera::cpu {
namespace {

constexpr int64_t kTileColumns = 32;

struct Scan {
  ScanShape e;
  const float *q = nullptr, *k = nullptr, *v = nullptr, *decay = nullptr;  // decay = exp(log_decay)
  const float* beta = nullptr;
  const float *a = nullptr, *b = nullptr;  // with rule general, in place of beta
  float* out = nullptr;
};

// Tokens that continue one state: `count` of a list, or those from `first` on.
struct ScanTokens {
  const int64_t* list;
  int64_t first, count;
  int64_t at(int64_t i) const { return list != nullptr ? list[i] : first + i; }
};

// Columns [begin, begin + width) of value head `head`, in rows of `stride` numbers; rows are whole tiles.
struct ScanTile {
  int64_t head, begin, width;
  float* state;
  int64_t stride;
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// Vectors of columns that are computed at once.
constexpr int kGroup = kRowLanes >= 8 ? static_cast<int>(kTileColumns / kRowLanes) : 4;
constexpr int64_t kGroupColumns = kGroup * kRowLanes;

// Up to kGroup vectors at `from`, of which `width` elements are there.
HWY_INLINE void load_columns(const float* from, int64_t width, VR (&to)[kGroup]) {
#pragma GCC unroll 8
  for (int n = 0; n < kGroup; ++n) {
    const int64_t left = width - n * kRowLanes;
    to[n] = left >= kRowLanes ? hn::LoadU(DR(), from + n * kRowLanes)
                              : load_part(from + n * kRowLanes, std::max<int64_t>(left, 0));
  }
}

HWY_INLINE void store_columns(const VR (&from)[kGroup], int64_t width, float* to) {
#pragma GCC unroll 8
  for (int n = 0; n < kGroup; ++n) {
    const int64_t left = width - n * kRowLanes;
    if (left >= kRowLanes)
      hn::StoreU(from[n], DR(), to + n * kRowLanes);
    else if (left > 0)
      store_part(from[n], to + n * kRowLanes, left);
  }
}

// S^T x; even and odd channels apart. With kDecays the decay by channel is applied to S.
template <bool kDecays>
HWY_INLINE void dot_with_state(const float* x, const float* decay, int64_t K, const float* state, int64_t stride,
                               VR (&dot)[kGroup]) {
  const DR d;
  VR odd[kGroup];
#pragma GCC unroll 8
  for (int n = 0; n < kGroup; ++n) dot[n] = odd[n] = hn::Zero(d);
  const auto add = [&](int64_t i, VR(&sums)[kGroup]) HWY_ATTR {
    const VR factor = hn::Set(d, kDecays ? x[i] * decay[i] : x[i]);
#pragma GCC unroll 8
    for (int n = 0; n < kGroup; ++n)
      sums[n] = hn::MulAdd(factor, hn::LoadU(d, state + i * stride + n * kRowLanes), sums[n]);
  };
  int64_t i = 0;
  for (; i + 2 <= K; i += 2) add(i, dot), add(i + 1, odd);
  if (i < K) add(i, dot);
#pragma GCC unroll 8
  for (int n = 0; n < kGroup; ++n) dot[n] = hn::Add(dot[n], odd[n]);
}

// A token's vectors of its key head; b with rule general.
struct KeyVectors {
  const float *key, *query, *b, *decay;
};

// S <- decay S + k d^T, with rule general also b r^T, where r is `read`; and S^T q of that.
template <bool kByChannel, ScanRule kRule>
HWY_INLINE void update_state(const KeyVectors& x, int64_t K, float* state, int64_t stride, const VR (&change)[kGroup],
                             const VR (&read)[kGroup], VR (&result)[kGroup]) {
  const DR d;
  VR factor = hn::Set(d, x.decay[0]);
#pragma GCC unroll 8
  for (int n = 0; n < kGroup; ++n) result[n] = hn::Zero(d);
  for (int64_t i = 0; i < K; ++i) {
    if (kByChannel) factor = hn::Set(d, x.decay[i]);
    const VR key_i = hn::Set(d, x.key[i]), query_i = hn::Set(d, x.query[i]);
#pragma GCC unroll 8
    for (int n = 0; n < kGroup; ++n) {
      float* const at = state + i * stride + n * kRowLanes;
      VR next = hn::MulAdd(key_i, change[n], hn::Mul(factor, hn::LoadU(d, at)));
      if constexpr (kRule == ScanRule::kGeneral) next = hn::MulAdd(hn::Set(d, x.b[i]), read[n], next);
      hn::StoreU(next, d, at);
      result[n] = hn::MulAdd(query_i, next, result[n]);
    }
  }
}

template <bool kByChannel, ScanRule kRule>
HWY_INLINE void scan_columns(const Scan& x, const ScanTokens& tokens, const ScanTile& tile) {
  const DR d;
  const ScanShape& e = x.e;
  const int64_t g = tile.head / e.group();
  const VR scale = hn::Set(d, static_cast<float>(e.scale));
  for (int64_t t = 0; t < tokens.count; ++t) {
    const int64_t token = tokens.at(t), row = e.value_row(token, tile.head), keys = e.key_row(token, g) * e.K;
    const KeyVectors at = {x.k + keys, x.q + keys, kRule == ScanRule::kGeneral ? x.b + keys : nullptr,
                           x.decay + row * e.decays()};
    VR change[kGroup], read[kGroup], sums[kGroup];
    load_columns(x.v + row * e.V + tile.begin, tile.width, change);
    if constexpr (kRule == ScanRule::kGeneral)
      dot_with_state<false>(x.a + keys, at.decay, e.K, tile.state, tile.stride, read);
    if constexpr (kRule == ScanRule::kDelta) {
      dot_with_state<kByChannel>(at.key, at.decay, e.K, tile.state, tile.stride, read);
      const VR factor = hn::Set(d, kByChannel ? 1.0f : at.decay[0]);
#pragma GCC unroll 8
      for (int n = 0; n < kGroup; ++n) change[n] = hn::NegMulAdd(factor, read[n], change[n]);
    }
    if constexpr (kRule != ScanRule::kGeneral) {
      const VR beta = hn::Set(d, x.beta[row]);
#pragma GCC unroll 8
      for (int n = 0; n < kGroup; ++n) change[n] = hn::Mul(beta, change[n]);
    }
    update_state<kByChannel, kRule>(at, e.K, tile.state, tile.stride, change, read, sums);
#pragma GCC unroll 8
    for (int n = 0; n < kGroup; ++n) sums[n] = hn::Mul(scale, sums[n]);
    store_columns(sums, tile.width, x.out + row * e.V + tile.begin);
  }
}

template <bool kByChannel>
HWY_INLINE void scan_by_rule(const Scan& x, const ScanTokens& tokens, const ScanTile& part) {
  switch (x.e.rule) {
    case ScanRule::kAdd: return scan_columns<kByChannel, ScanRule::kAdd>(x, tokens, part);
    case ScanRule::kDelta: return scan_columns<kByChannel, ScanRule::kDelta>(x, tokens, part);
    case ScanRule::kGeneral: return scan_columns<kByChannel, ScanRule::kGeneral>(x, tokens, part);
  }
}

void scan_tile(const Scan& x, const ScanTokens& tokens, const ScanTile& tile) {
  for (int64_t from = 0; from < tile.width; from += kGroupColumns) {
    const ScanTile part = {tile.head, tile.begin + from, std::min(kGroupColumns, tile.width - from),
                           tile.state + from, tile.stride};
    x.e.decays_by_channel ? scan_by_rule<true>(x, tokens, part) : scan_by_rule<false>(x, tokens, part);
  }
}

void exp_all(const float* x, float* y, int64_t begin, int64_t end) {
  for_vectors(begin, end, [&](auto at) HWY_ATTR { at.store(fast_exp(DR(), at.load(x)), y); });
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(scan_tile);
HWY_EXPORT(exp_all);

namespace {

int64_t align_64(int64_t bytes) { return (bytes + 63) / 64 * 64; }
int64_t tiles_of(int64_t V) { return (V + kTileColumns - 1) / kTileColumns; }

Status require_channels(const ScanShape& e) {
  if (e.K > 0) return {};
  return Status(StatusCode::kUnsupported, "keys without channels: the reference kernel takes them");
}

// Operands q, k, v, log_decay, and beta or a, b from `first` on; exponentials of the decays go to `decays`.
Scan scan_of(const ScanShape& e, const LaunchArgs& args, int first, float* decays) {
  const float* log_decay = args.in<float>(first + 3);
  constexpr int64_t kGrain = 4096;  // exponentials of a task
  args.pool.parallel_ranges(e.B * e.T * e.H * e.decays(), kGrain, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(exp_all)(log_decay, decays, begin, end);
  });
  Scan x = {.e = e, .q = args.in<float>(first), .k = args.in<float>(first + 1), .v = args.in<float>(first + 2)};
  x.decay = decays, x.out = args.out<float>(0);
  (e.is_general() ? x.a : x.beta) = args.in<float>(first + 4);
  if (e.is_general()) x.b = args.in<float>(first + 5);
  return x;
}

int64_t decay_bytes(const ScanShape& e) {
  return align_64(e.B * e.T * e.H * e.decays() * static_cast<int64_t>(sizeof(float)));
}

// The tokens of sequence b, in runs between which the state starts over.
void scan_sequence(const Scan& x, const int32_t* segments, int64_t b, ScanTile tile) {
  const int64_t T = x.e.T;
  for (int64_t t = 0; t < T;) {
    int64_t end = segments == nullptr ? T : t + 1;
    while (end < T && !starts_segment(segments, end)) ++end;
    std::fill_n(tile.state, x.e.K * tile.stride, 0.0f);
    HWY_DYNAMIC_DISPATCH(scan_tile)(x, {nullptr, b * T + t, end - t}, tile);
    t = end;
  }
}

// The tokens of one row of state, which lies in `tile`.
void scan_row(const Scan& x, const int32_t* position, std::span<const int64_t> tokens, const ScanTile& tile) {
  const auto count = static_cast<int64_t>(tokens.size());
  for (int64_t t = 0; t < count;) {
    if (position[tokens[static_cast<size_t>(t)]] == 0)
      for (int64_t i = 0; i < x.e.K; ++i) std::fill_n(tile.state + i * tile.stride, tile.width, 0.0f);
    int64_t end = t + 1;
    while (end < count && position[tokens[static_cast<size_t>(end)]] != 0) ++end;
    HWY_DYNAMIC_DISPATCH(scan_tile)(x, {tokens.data() + t, 0, end - t}, tile);
    t = end;
  }
}

// Tile `tile` of the state [K, V] of one row: few tokens take it where it lies, many from a copy whose rows are adjacent.
void scan_kept(const Scan& x, const int32_t* position, std::span<const int64_t> tokens, ScanTile tile,
               const Pool& pool) {
  constexpr size_t kFew = 3;
  if (tile.width == kTileColumns && tokens.size() <= kFew) return scan_row(x, position, tokens, tile);
  Scratch scratch(pool, x.e.K * kTileColumns);
  float* const kept = tile.state;
  const int64_t stride = tile.stride;
  tile.state = scratch.floats(x.e.K * kTileColumns);
  tile.stride = kTileColumns;
  std::fill_n(tile.state, tile.width < kTileColumns ? x.e.K * kTileColumns : 0, 0.0f);
  for (int64_t i = 0; i < x.e.K; ++i) std::copy_n(kept + i * stride, tile.width, tile.state + i * kTileColumns);
  scan_row(x, position, tokens, tile);
  for (int64_t i = 0; i < x.e.K; ++i) std::copy_n(tile.state + i * kTileColumns, tile.width, kept + i * stride);
}

}  // namespace

Result<PreparedKernel> prepare_state_scan_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const ScanShape e(spec, 0);
  TSR_RETURN_IF_ERROR(require_channels(e));
  const bool has_segments = spec.input_count() > e.operand_count();
  const int64_t tiles = tiles_of(e.V);
  return simd_prepared(
      spec, e.flops(), make_kernel([=](const LaunchArgs& args) {
        const Scan x = scan_of(e, args, 0, static_cast<float*>(args.workspace));
        args.pool.parallel_for(e.B * e.H * tiles, [&](int64_t task) {
          const int64_t b = task / tiles / e.H, begin = task % tiles * kTileColumns;
          Scratch scratch(args.pool, e.K * kTileColumns);
          scan_sequence(x, has_segments ? args.in<int32_t>(e.operand_count()) + b * e.T : nullptr, b,
                        {task / tiles % e.H, begin, std::min(kTileColumns, e.V - begin),
                         scratch.floats(e.K * kTileColumns), kTileColumns});
        });
      }),
      decay_bytes(e));
}

Result<PreparedKernel> prepare_state_scan_rows_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const ScanShape e(spec, 1);
  TSR_RETURN_IF_ERROR(require_channels(e));
  const int64_t R = spec.input_dims(0)[0], tokens = e.B * e.T, state_count = spec.input_elements(0);
  const int64_t tiles = tiles_of(e.V), lists = decay_bytes(e);
  const int row_operand = 1 + e.operand_count();
  return simd_prepared(
      spec, e.flops(), make_kernel([=](const LaunchArgs& args) {
        auto* const memory = static_cast<std::byte*>(args.workspace);
        const RowTokens by_row(R, args.in<int32_t>(row_operand), tokens, memory + lists);
        const Scan x = scan_of(e, args, 1, reinterpret_cast<float*>(memory));
        float* const state = args.out<float>(1);
        begin_rows<float>(args, by_row, e.H * e.V, state_count);
        args.pool.parallel_for(by_row.active_count() * e.H * tiles, [&](int64_t task) {
          const int64_t row = by_row.active(task / tiles / e.H), h = task / tiles % e.H;
          const int64_t begin = task % tiles * kTileColumns;
          scan_kept(x, args.in<int32_t>(row_operand + 1), by_row.of(row),
                    {h, begin, std::min(kTileColumns, e.V - begin), state + (row * e.H + h) * e.K * e.V + begin, e.V},
                    args.pool);
        });
      }),
      lists + RowTokens::bytes(R, tokens));
}

}  // namespace tessera::cpu
#endif
