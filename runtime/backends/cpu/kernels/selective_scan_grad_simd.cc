// The gradient of a selective scan in f32, a tile of channels of one sequence at a time. A first scan keeps the states at every
// kChunk-th token; from them each chunk is scanned again, last chunk first, with its states and decays kept, and then gone
// through backwards. What is summed over channels or sequences goes to a row of each task, which are added in order.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "runtime/backends/cpu/kernels/recurrent_kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/kernels/selective_scan_shape.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/selective_scan_grad_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/rows-inl.h"
#include "runtime/backends/cpu/kernels/vector_math-inl.h"

#ifndef TSR_SELECTIVE_SCAN_GRAD_SIMD_CC_ONCE_
#define TSR_SELECTIVE_SCAN_GRAD_SIMD_CC_ONCE_
namespace tessera::cpu {
namespace {

constexpr int64_t kChunk = 16;         // tokens
constexpr int64_t kTileChannels = 64;  // of a task

// Operands and results of a task: of one sequence, from its first channel on, and scratch. A state is [N, kTileChannels].
struct SelectiveTile {
  SelectiveShape e;
  int64_t width;
  const float *x = nullptr, *step = nullptr, *dy = nullptr;  // [T, C]
  const float *b = nullptr, *c = nullptr;                    // [T, N]; null without expansion
  const int32_t* segments = nullptr;                         // may be null
  float *dx = nullptr, *dstep = nullptr;                     // [T, C]
  float *db = nullptr, *dc = nullptr;                        // [T, N]: sums over the tile's channels
  float *rate = nullptr, *drate = nullptr;                   // [N, kTileChannels]; the latter of the chunk
  float *states = nullptr, *decays = nullptr;                // [kChunk + 1], [kChunk] states: after each token of a chunk
  float* slope = nullptr;                                    // the gradient of the state
  float *du = nullptr, *dexponent = nullptr;                 // [kTileChannels]: of one token

  int64_t size() const { return e.N * kTileChannels; }
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// The input of a token to the state, without its factor b.
template <class At>
HWY_INLINE VR input_at(const SelectiveTile& x, int64_t t, const At& at) {
  const VR value = at.load(x.x + t * x.e.C);
  return x.e.expands ? hn::Mul(value, at.load(x.step + t * x.e.C)) : value;
}

// Scans tokens [begin, end) from the first of `states`; leaves the states and decays.
void scan_selective_chunk(const SelectiveTile& x, int64_t begin, int64_t end) {
  const DR d;
  const int64_t N = x.e.N, size = x.size();
  for (int64_t t = begin; t < end; ++t) {
    float *const before = x.states + (t - begin) * size, *const decays = x.decays + (t - begin) * size;
    const bool starts = starts_segment(x.segments, t);
    for_vectors(0, x.width, [&](auto at) HWY_ATTR {
      const VR step = at.load(x.step + t * x.e.C), u = input_at(x, t, at);
      for (int64_t n = 0; n < N; ++n) {
        const int64_t row = n * kTileChannels;
        const VR decay = fast_exp(d, hn::Mul(step, at.load(x.rate + row)));
        const VR b = hn::Set(d, x.b == nullptr ? 1.0f : x.b[t * N + n]);
        at.store(decay, decays + row);
        const VR old = starts ? hn::Zero(d) : at.load(before + row);
        at.store(hn::MulAdd(decay, old, hn::Mul(u, b)), before + size + row);
      }
    });
  }
}

// One number of the states, of all channels of the tile. The state after token t follows `before`, which counts as zero where a
// segment starts.
HWY_INLINE void number_back(const SelectiveTile& x, int64_t t, int64_t n, const float* before, const float* decays,
                            bool starts) {
  const DR d;
  const int64_t row = n * kTileChannels;
  const float* const after = before + x.size();
  const bool expands = x.e.expands;
  const VR b = hn::Set(d, expands ? x.b[t * x.e.N + n] : 1.0f), c = hn::Set(d, expands ? x.c[t * x.e.N + n] : 1.0f);
  VR db = hn::Zero(d), dc = hn::Zero(d);
  for_vectors(0, x.width, [&](auto at) HWY_ATTR {
    const VR dy = at.load(x.dy + t * x.e.C), step = at.load(x.step + t * x.e.C);
    const VR slope = hn::MulAdd(c, dy, at.load(x.slope + row));
    dc = hn::MulAdd(dy, at.load(after + row), dc);
    db = hn::MulAdd(slope, input_at(x, t, at), db);
    at.store(hn::MulAdd(slope, b, at.load(x.du)), x.du);
    const VR old = starts ? hn::Zero(d) : at.load(before + row);
    const VR decayed = starts ? old : hn::Mul(slope, at.load(decays + row)), de = hn::Mul(decayed, old);
    at.store(hn::MulAdd(de, at.load(x.rate + row), at.load(x.dexponent)), x.dexponent);
    at.store(hn::MulAdd(de, step, at.load(x.drate + row)), x.drate + row);
    at.store(decayed, x.slope + row);
  });
  if (expands) x.db[t * x.e.N + n] = sum_of(db), x.dc[t * x.e.N + n] = sum_of(dc);
}

// Tokens [begin, end) backwards.
void selective_chunk_back(const SelectiveTile& x, int64_t begin, int64_t end) {
  for (int64_t t = end - 1; t >= begin; --t) {
    const int64_t at_token = (t - begin) * x.size();
    std::fill_n(x.du, kTileChannels, 0.0f);
    std::fill_n(x.dexponent, kTileChannels, 0.0f);
    const bool starts = starts_segment(x.segments, t);
    for (int64_t n = 0; n < x.e.N; ++n) number_back(x, t, n, x.states + at_token, x.decays + at_token, starts);
    for_vectors(0, x.width, [&](auto at) HWY_ATTR {
      VR dx = at.load(x.du), dstep = at.load(x.dexponent);
      if (x.e.expands) {
        dstep = hn::MulAdd(dx, at.load(x.x + t * x.e.C), dstep);
        dx = hn::Mul(dx, at.load(x.step + t * x.e.C));
      }
      at.store(dx, x.dx + t * x.e.C), at.store(dstep, x.dstep + t * x.e.C);
    });
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(scan_selective_chunk);
HWY_EXPORT(selective_chunk_back);

namespace {

int64_t tiles_of(int64_t C) { return (C + kTileChannels - 1) / kTileChannels; }
int64_t chunks_of(int64_t T) { return (T + kChunk - 1) / kChunk; }

// Rows of tasks: [tiles, B, T, N] twice, and drate [B, C, N].
struct SelectiveRows {
  float *db, *dc, *drate;
  static int64_t count(const SelectiveShape& e) { return e.N * e.B * (2 * tiles_of(e.C) * e.T + e.C); }
  SelectiveRows(const SelectiveShape& e, void* memory)
      : db(static_cast<float*>(memory)), dc(db + tiles_of(e.C) * e.B * e.T * e.N), drate(dc + (dc - db)) {}
};

// Runs the scan and goes back through it; `total` [N, kTileChannels] becomes the gradient of rate, `kept` [chunks] states.
void tile_back(const SelectiveTile& x, float* kept, float* total) {
  const int64_t size = x.size(), chunks = chunks_of(x.e.T);
  std::fill_n(x.slope, size, 0.0f);
  std::fill_n(total, size, 0.0f);
  for (int64_t chunk = 0; chunk + 1 < chunks; ++chunk) {
    if (chunk > 0) std::copy_n(kept + chunk * size, size, x.states);
    HWY_DYNAMIC_DISPATCH(scan_selective_chunk)(x, chunk * kChunk, (chunk + 1) * kChunk);
    std::copy_n(x.states + kChunk * size, size, kept + (chunk + 1) * size);
  }
  for (int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
    const int64_t begin = chunk * kChunk, end = std::min(x.e.T, begin + kChunk);
    if (chunk > 0) std::copy_n(kept + chunk * size, size, x.states);
    HWY_DYNAMIC_DISPATCH(scan_selective_chunk)(x, begin, end);
    std::fill_n(x.drate, size, 0.0f);
    HWY_DYNAMIC_DISPATCH(selective_chunk_back)(x, begin, end);
    for (int64_t i = 0; i < size; ++i) total[i] += x.drate[i];
  }
}

// One task; `x` lacks its scratch.
void run_tile(SelectiveTile x, const float* rate, float* drate, const Pool& pool) {
  const int64_t size = x.size(), chunks = chunks_of(x.e.T);
  Scratch scratch(pool, size * (2 * kChunk + chunks + 5) + 2 * kTileChannels);
  x.states = scratch.floats((kChunk + 1) * size), x.decays = scratch.floats(kChunk * size);
  x.slope = scratch.floats(size), x.rate = scratch.floats(size), x.drate = scratch.floats(size);
  x.du = scratch.floats(kTileChannels), x.dexponent = scratch.floats(kTileChannels);
  float* const total = scratch.floats(size);
  for (int64_t n = 0; n < x.e.N; ++n)
    for (int64_t c = 0; c < kTileChannels; ++c)
      x.rate[n * kTileChannels + c] = rate == nullptr ? 1.0f : c < x.width ? rate[c * x.e.N + n] : 0.0f;
  tile_back(x, scratch.floats(chunks * size), total);
  for (int64_t c = 0; c < x.width && drate != nullptr; ++c)
    for (int64_t n = 0; n < x.e.N; ++n) drate[c * x.e.N + n] = total[n * kTileChannels + c];
}

// sums [count] = the rows [rows, count], added in order.
void add_rows(const Pool& pool, const float* rows, int64_t row_count, int64_t count, float* sums) {
  pool.parallel_ranges(count, row_grain(row_count), [&](int64_t begin, int64_t end) {
    std::fill(sums + begin, sums + end, 0.0f);
    for (int64_t row = 0; row < row_count; ++row)
      for (int64_t i = begin; i < end; ++i) sums[i] += rows[row * count + i];
  });
}

}  // namespace

Result<PreparedKernel> prepare_selective_scan_grad_simd(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const SelectiveShape e(spec, 1);
  if (e.N == 0) return Status(StatusCode::kUnsupported, "states without numbers: the reference kernel takes them");
  const int segments = 1 + e.operand_count();
  const bool has_segments = spec.input_count() > segments;
  const int64_t tiles = tiles_of(e.C);
  return simd_prepared(
      spec, 3 * e.flops(), make_kernel([=](const LaunchArgs& args) {
        const SelectiveRows rows(e, args.workspace);
        args.pool.parallel_for(e.B * tiles, [&](int64_t task) {
          const int64_t b = task / tiles, first = task % tiles * kTileChannels, at = b * e.T * e.C + first;
          SelectiveTile x = {.e = e, .width = std::min(kTileChannels, e.C - first)};
          x.dy = args.in<float>(0) + at, x.x = args.in<float>(1) + at, x.step = args.in<float>(2) + at;
          x.segments = has_segments ? args.in<int32_t>(segments) + b * e.T : nullptr;
          x.dx = args.out<float>(0) + at, x.dstep = args.out<float>(1) + at;
          if (!e.expands) return run_tile(x, nullptr, nullptr, args.pool);
          x.b = args.in<float>(4) + b * e.T * e.N, x.c = args.in<float>(5) + b * e.T * e.N;
          const int64_t row = (task % tiles * e.B + b) * e.T * e.N;
          x.db = rows.db + row, x.dc = rows.dc + row;
          run_tile(x, args.in<float>(3) + first * e.N, rows.drate + (b * e.C + first) * e.N, args.pool);
        });
        if (!e.expands) return;
        add_rows(args.pool, rows.drate, e.B, e.C * e.N, args.out<float>(2));
        add_rows(args.pool, rows.db, tiles, e.B * e.T * e.N, args.out<float>(3));
        add_rows(args.pool, rows.dc, tiles, e.B * e.T * e.N, args.out<float>(4));
      }),
      e.expands ? SelectiveRows::count(e) * static_cast<int64_t>(sizeof(float)) : 0);
}

}  // namespace tessera::cpu
#endif
