// Selective scans in f32, a tile of channels at a time, whose states stay in L1 for all of a task's tokens. A channel's sums are
// added in one order, whatever the step that a token comes in.
#include <algorithm>
#include <cstddef>
#include <span>

#include "runtime/backends/cpu/kernels/recurrent_kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/kernels/row_tokens.h"
#include "runtime/backends/cpu/kernels/selective_scan_shape.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/selective_scan_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/rows-inl.h"
#include "runtime/backends/cpu/kernels/vector_math-inl.h"

#ifndef TSR_SELECTIVE_SCAN_SIMD_CC_ONCE_
#define TSR_SELECTIVE_SCAN_SIMD_CC_ONCE_
namespace tessera::cpu {
namespace {

constexpr int64_t kTileChannels = 64;

// Operands; rate is transposed to [N, C].
struct Selective {
  SelectiveShape e;
  const float *x, *step, *rate, *b, *c;
  float* y;
};

// Channels [begin, begin + width): N rows of state, `stride` numbers apart.
struct ChannelTile {
  int64_t begin, width;
  float* state;
  int64_t stride;
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

template <class At>
HWY_INLINE void scan_channels(const Selective& x, int64_t token, const ChannelTile& tile, const At& at) {
  const DR d;
  const int64_t N = x.e.N, row = token * x.e.C + tile.begin;
  const VR step = at.load(x.step + row), u = hn::Mul(step, at.load(x.x + row));
  const float *b = x.b + token * N, *c = x.c + token * N;
  VR sum = hn::Zero(d);
  for (int64_t n = 0; n < N; ++n) {
    float* const state = tile.state + n * tile.stride;
    const VR decay = fast_exp(d, hn::Mul(step, at.load(x.rate + n * x.e.C + tile.begin)));
    const VR next = hn::MulAdd(decay, at.load(state), hn::Mul(u, hn::Set(d, b[n])));
    at.store(next, state);
    sum = hn::MulAdd(hn::Set(d, c[n]), next, sum);
  }
  at.store(sum, x.y + row);
}

template <class At>
HWY_INLINE void scan_single(const Selective& x, int64_t token, const ChannelTile& tile, const At& at) {
  const int64_t row = token * x.e.C + tile.begin;
  const VR decay = fast_exp(DR(), at.load(x.step + row));
  const VR next = hn::MulAdd(decay, at.load(tile.state), at.load(x.x + row));
  at.store(next, tile.state);
  at.store(next, x.y + row);
}

void scan_channel_tile(const Selective& x, int64_t token, const ChannelTile& tile) {
  for_vectors(0, tile.width, [&](auto at) HWY_ATTR {
    if (x.e.expands)
      scan_channels(x, token, tile, at);
    else
      scan_single(x, token, tile, at);
  });
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(scan_channel_tile);

namespace {

int64_t align_64(int64_t bytes) { return (bytes + 63) / 64 * 64; }
int64_t tiles_of(int64_t C) { return (C + kTileChannels - 1) / kTileChannels; }
int64_t rate_bytes(const SelectiveShape& e) {
  return e.expands ? align_64(e.C * e.N * static_cast<int64_t>(sizeof(float))) : 0;
}

// Operands from x, number `first`, on; the transposed rate goes to `rate`.
Selective selective_of(const SelectiveShape& e, const LaunchArgs& args, int first, float* rate) {
  const float *x = args.in<float>(first), *step = args.in<float>(first + 1);
  if (!e.expands) return {e, x, step, nullptr, nullptr, nullptr, args.out<float>(0)};
  const float* from = args.in<float>(first + 2);
  args.pool.parallel_for(tiles_of(e.C), [&](int64_t tile) {
    const int64_t begin = tile * kTileChannels, end = std::min(e.C, begin + kTileChannels);
    for (int64_t n = 0; n < e.N; ++n)
      for (int64_t c = begin; c < end; ++c) rate[n * e.C + c] = from[c * e.N + n];
  });
  return {e, x, step, rate, args.in<float>(first + 3), args.in<float>(first + 4), args.out<float>(0)};
}

void clear_state(const SelectiveShape& e, const ChannelTile& tile) {
  for (int64_t n = 0; n < e.N; ++n) std::fill_n(tile.state + n * tile.stride, tile.width, 0.0f);
}

ChannelTile tile_at(const SelectiveShape& e, int64_t tile, float* state, int64_t stride) {
  const int64_t begin = tile * kTileChannels;
  return {begin, std::min(kTileChannels, e.C - begin), state, stride};
}

Status require_numbers(const SelectiveShape& e) {
  if (e.N > 0) return {};
  return Status(StatusCode::kUnsupported, "states without numbers: the reference kernel takes them");
}

}  // namespace

Result<PreparedKernel> prepare_selective_scan_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const SelectiveShape e(spec, 0);
  TSR_RETURN_IF_ERROR(require_numbers(e));
  const bool has_segments = spec.input_count() > e.operand_count();
  const int64_t tiles = tiles_of(e.C);
  return simd_prepared(
      spec, e.flops(), make_kernel([=](const LaunchArgs& args) {
        const Selective x = selective_of(e, args, 0, static_cast<float*>(args.workspace));
        args.pool.parallel_for(e.B * tiles, [&](int64_t task) {
          const int64_t b = task / tiles;
          const int32_t* segments = has_segments ? args.in<int32_t>(e.operand_count()) + b * e.T : nullptr;
          Scratch scratch(args.pool, e.N * kTileChannels);
          const ChannelTile tile = tile_at(e, task % tiles, scratch.floats(e.N * kTileChannels), kTileChannels);
          for (int64_t t = 0; t < e.T; ++t) {
            if (starts_segment(segments, t)) clear_state(e, tile);
            HWY_DYNAMIC_DISPATCH(scan_channel_tile)(x, b * e.T + t, tile);
          }
        });
      }),
      rate_bytes(e));
}

Result<PreparedKernel> prepare_selective_scan_rows_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const SelectiveShape e(spec, 1);
  TSR_RETURN_IF_ERROR(require_numbers(e));
  const int64_t R = spec.input_dims(0)[0], tokens = e.B * e.T, state_count = spec.input_elements(0);
  const int64_t tiles = tiles_of(e.C), lists = rate_bytes(e);
  const int row_operand = 1 + e.operand_count();
  return simd_prepared(
      spec, e.flops(), make_kernel([=](const LaunchArgs& args) {
        auto* const memory = static_cast<std::byte*>(args.workspace);
        const RowTokens by_row(R, args.in<int32_t>(row_operand), tokens, memory + lists);
        const Selective x = selective_of(e, args, 1, reinterpret_cast<float*>(memory));
        const int32_t* const position = args.in<int32_t>(row_operand + 1);
        float* const state = args.out<float>(1);
        begin_rows<float>(args, by_row, e.C, state_count);
        args.pool.parallel_for(by_row.active_count() * tiles, [&](int64_t task) {
          const int64_t row = by_row.active(task / tiles), begin = task % tiles * kTileChannels;
          const ChannelTile tile = tile_at(e, task % tiles, state + row * e.N * e.C + begin, e.C);
          for (const int64_t token : by_row.of(row)) {
            if (position[token] == 0) clear_state(e, tile);
            HWY_DYNAMIC_DISPATCH(scan_channel_tile)(x, token, tile);
          }
        });
      }),
      lists + RowTokens::bytes(R, tokens));
}

}  // namespace tessera::cpu
#endif
