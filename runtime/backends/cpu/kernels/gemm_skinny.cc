// Gemm with few rows of A: B is read once, straight from memory; bandwidth is the ceiling. Sums are those of the packed
// kernel: see gemm.h.
#include <algorithm>
#include <cstring>

#include "runtime/backends/cpu/kernels/gemm_narrow.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/gemm_skinny.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/bf16_vectors-inl.h"
#include "runtime/backends/cpu/kernels/gemm_finish-inl.h"

#ifndef TSR_GEMM_SKINNY_CC_ONCE_
#define TSR_GEMM_SKINNY_CC_ONCE_
namespace tessera::cpu {
namespace {

constexpr int64_t kPassRows = 8;  // that share what is loaded of B

// Columns a task.
int64_t skinny_grain(const Gemm& g) {
  return g.b_col == 1 ? 128 : std::clamp<int64_t>((1 << 15) / g.k / 32 * 32, 32, 1024);
}
bool is_skinny(const Gemm& g) {
  const bool has_kernel = g.b_type == DType::kF32 || g.b_col != 1;
  return has_kernel && !g.adds && !g.tf32 &&
         g.m <= (g.b_type == DType::kF32 ? kSkinnyRows : kSkinnyHalfRows) && (g.a_col == 1 || g.m == 1);
}

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// ---- B with rows of consecutive columns

// sums [MR][NV vectors] of columns from `column` on; a vector of row k of B is load(k, j).
template <int MR, int NV, class Load>
HWY_INLINE void sum_columns(const Gemm& g, const GemmBuffers& buffers, float* c, int64_t ldc,
                            const Load& load) {
  const DF d;
  const float* a = buffers.a;
  for (int64_t begin = 0; begin < g.k; begin += kGemmDepth) {
    const int64_t end = std::min(g.k, begin + kGemmDepth);
    VF acc[MR][NV];
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) acc[i][j] = hn::Zero(d);
    }
    for (int64_t k = begin; k < end; ++k) {
      VF row[NV];
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) row[j] = load(k, j);
#pragma GCC unroll 8
      for (int i = 0; i < MR; ++i) {
        const VF value = hn::Set(d, a[i * g.a_row + k * g.a_col]);
#pragma GCC unroll 8
        for (int j = 0; j < NV; ++j) acc[i][j] = hn::MulAdd(value, row[j], acc[i][j]);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) {
        float* const to = c + i * ldc + j * kLanes;
        hn::StoreU(begin > 0 ? hn::Add(acc[i][j], hn::LoadU(d, to)) : acc[i][j], d, to);
      }
    }
  }
}

template <int MR, int NV>
void skinny_columns(const Gemm& g, const GemmBuffers& buffers, int64_t column) {
  constexpr int64_t kAhead = 16;  // rows of B; the stride is too long for the hardware's prefetchers
  const float* b = buffers.b + column;
  sum_columns<MR, NV>(g, buffers, buffers.c + column, g.n, [&](int64_t k, int j) HWY_ATTR {
    if (j * kLanes % 16 == 0)
      __builtin_prefetch(b + std::min(k + kAhead, g.k - 1) * g.b_row + j * kLanes, 0, 3);
    return hn::LoadU(DF(), b + k * g.b_row + j * kLanes);
  });
}

// Fewer columns than a vector has.
template <int MR>
void last_columns(const Gemm& g, const GemmBuffers& buffers, int64_t column, int64_t count) {
  alignas(64) float sums[MR * kLanes], row[kLanes] = {};
  sum_columns<MR, 1>(g, buffers, sums, kLanes, [&](int64_t k, int) HWY_ATTR {
    std::copy_n(buffers.b + k * g.b_row + column, count, row);
    return hn::Load(DF(), row);
  });
  for (int i = 0; i < MR; ++i) std::copy_n(sums + i * kLanes, count, buffers.c + i * g.n + column);
}

// All rows of C, columns [begin, end).
template <int MR>
void multiply_columns(const Gemm& g, const GemmBuffers& buffers, int64_t begin, int64_t end) {
  constexpr int kWide = MR == 1                   ? 8
                        : MR == 2                 ? 4
                        : kLanes == 16 && MR <= 4 ? 4
                        : kLanes == 16            ? 3
                        : MR <= 4                 ? 2
                                                  : 1;
  int64_t j = begin;
  for (; j + kWide * kLanes <= end; j += kWide * kLanes) skinny_columns<MR, kWide>(g, buffers, j);
  for (; j + kLanes <= end; j += kLanes) skinny_columns<MR, 1>(g, buffers, j);
  if (j < end) last_columns<MR>(g, buffers, j, end - j);
}

// ---- transposed B: dot products along its rows

struct F32Weights {
  using Number = float;
  static const float* base(const GemmBuffers& buffers) { return buffers.b; }
  static HWY_INLINE VF load(const float* p) { return hn::LoadU(DF(), p); }
};
template <bool kF16>
struct HalfWeights {
  using Number = uint16_t;
  static const uint16_t* base(const GemmBuffers& buffers) { return buffers.b_16; }
  static HWY_INLINE VF load(const uint16_t* p) {
    if constexpr (kF16) {
      const hn::Rebind<hwy::float16_t, DF> d16;
      return hn::PromoteTo(DF(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
    } else {
      return load_bf16(DF(), p);
    }
  }
};

// The first `count` numbers; the others of the vector are zero.
template <class Weights>
HWY_INLINE VF load_first(const typename Weights::Number* p, int64_t count) {
  alignas(64) typename Weights::Number part[kLanes] = {};
  std::memcpy(part, p, sizeof(part[0]) * static_cast<size_t>(count));
  return Weights::load(part);
}

// acc[m * COLS + c] = lanes of row m of A with row c of B over numbers [begin, end), a block or less. kAhead: numbers
// after these that are fetched, 0 for none.
template <class Weights, int MR, int COLS, int64_t kAhead = 0>
HWY_INLINE void sum_lanes(const Gemm& g, const float* a, const typename Weights::Number* b, int64_t begin,
                          int64_t end, VF (&acc)[MR * COLS]) {
  constexpr int64_t kStep = std::max<int64_t>(kLanes, 64 / sizeof(*b));  // a line of each row of B
  const auto add = [&](const auto& load_a, const auto& load_b) HWY_ATTR {
    VF value[MR];
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) value[m] = load_a(a + m * g.a_row);
#pragma GCC unroll 16
    for (int c = 0; c < COLS; ++c) {
      const VF weight = load_b(b + c * g.b_col);
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) acc[m * COLS + c] = hn::MulAdd(value[m], weight, acc[m * COLS + c]);
    }
  };
  const auto add_at = [&](int64_t k) HWY_ATTR {
    add([k](const float* row) HWY_ATTR { return hn::LoadU(DF(), row + k); },
        [k](const typename Weights::Number* row) HWY_ATTR { return Weights::load(row + k); });
  };
#pragma GCC unroll 16
  for (int i = 0; i < MR * COLS; ++i) acc[i] = hn::Zero(DF());
  int64_t k = begin;
#pragma GCC unroll 4
  for (; k + kStep <= end; k += kStep) {
    if constexpr (kAhead > 0) {
      // Past the end of these rows the next COLS follow.
      const int64_t ahead = k + kAhead < g.k ? k + kAhead : k + kAhead + (COLS - 1) * g.b_col;
#pragma GCC unroll 16
      for (int c = 0; c < COLS; ++c) __builtin_prefetch(b + c * g.b_col + ahead, 0, 3);
    }
#pragma GCC unroll 8
    for (int64_t s = 0; s < kStep; s += kLanes) add_at(k + s);
  }
  for (; k + kLanes <= end; k += kLanes) add_at(k);
  if (k == end) return;
  const int64_t count = end - k;
  add([=](const float* row) HWY_ATTR { return load_first<F32Weights>(row + k, count); },
      [=](const typename Weights::Number* row) HWY_ATTR { return load_first<Weights>(row + k, count); });
}

// Lane i of the result: the lanes of vector i, added in ascending order.
HWY_INLINE VF add_lanes(const VF (&v)[kLanes]) {
  const DF d;
  const hn::Repartition<double, DF> dd;
  VF blocks[kLanes / 4][4];
#pragma GCC unroll 4
  for (int q = 0; q < kLanes / 4; ++q) {
    const auto lo01 = hn::BitCast(dd, hn::InterleaveLower(d, v[4 * q], v[4 * q + 1]));
    const auto hi01 = hn::BitCast(dd, hn::InterleaveUpper(d, v[4 * q], v[4 * q + 1]));
    const auto lo23 = hn::BitCast(dd, hn::InterleaveLower(d, v[4 * q + 2], v[4 * q + 3]));
    const auto hi23 = hn::BitCast(dd, hn::InterleaveUpper(d, v[4 * q + 2], v[4 * q + 3]));
    blocks[q][0] = hn::BitCast(d, hn::InterleaveLower(dd, lo01, lo23));
    blocks[q][1] = hn::BitCast(d, hn::InterleaveUpper(dd, lo01, lo23));
    blocks[q][2] = hn::BitCast(d, hn::InterleaveLower(dd, hi01, hi23));
    blocks[q][3] = hn::BitCast(d, hn::InterleaveUpper(dd, hi01, hi23));
  }
  VF lanes[kLanes];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    // Blocks 0 and 2, or 1 and 3, of both.
    const auto even = [](VF a, VF b) HWY_ATTR { return VF{_mm512_shuffle_f32x4(a.raw, b.raw, 0x88)}; };
    const auto odd = [](VF a, VF b) HWY_ATTR { return VF{_mm512_shuffle_f32x4(a.raw, b.raw, 0xdd)}; };
    const VF lower0 = hn::ConcatLowerLower(d, blocks[1][j], blocks[0][j]);
    const VF lower1 = hn::ConcatLowerLower(d, blocks[3][j], blocks[2][j]);
    const VF upper0 = hn::ConcatUpperUpper(d, blocks[1][j], blocks[0][j]);
    const VF upper1 = hn::ConcatUpperUpper(d, blocks[3][j], blocks[2][j]);
    lanes[j] = even(lower0, lower1);
    lanes[4 + j] = odd(lower0, lower1);
    lanes[8 + j] = even(upper0, upper1);
    lanes[12 + j] = odd(upper0, upper1);
#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
    lanes[j] = hn::ConcatLowerLower(d, blocks[1][j], blocks[0][j]);
    lanes[4 + j] = hn::ConcatUpperUpper(d, blocks[1][j], blocks[0][j]);
#else
    lanes[j] = blocks[0][j];
#endif
  }
  VF sum = lanes[0];
#pragma GCC unroll 16
  for (int i = 1; i < kLanes; ++i) sum = hn::Add(lanes[i], sum);
  return sum;
}

// One row of A with rows [begin, end) of B, a multiple of ROWS, that many at a time. Lanes of kLanes blocks, of one
// row or of several, are added at a time.
template <class Weights, int ROWS, int64_t kAhead>
void dot_one(const Gemm& g, const GemmBuffers& buffers, int64_t begin, int64_t end) {
  const DF d;
  const hn::CappedTag<float, ROWS> dr;
  alignas(64) float kept[kLanes][kLanes], sums[kLanes];
  auto total = hn::Zero(dr);
  int64_t added_row = begin, added_k = 0;  // all before them is in `total` and C
  const auto add_kept = [&](int count) HWY_ATTR {
    VF lanes[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) lanes[i] = hn::Load(d, kept[i]);
    hn::Store(add_lanes(lanes), d, sums);
    for (int i = 0; i < count; i += ROWS) {
      const auto sum = hn::Load(dr, sums + i);
      total = added_k > 0 ? hn::Add(sum, total) : sum;
      added_k += kGemmDepth;
      if (added_k < g.k) continue;
      hn::StoreU(total, dr, buffers.c + added_row);
      added_row += ROWS, added_k = 0;
    }
  };
  int count = 0;
  for (int64_t row = begin; row < end; row += ROWS) {
    const auto* b = Weights::base(buffers) + row * g.b_col;
    for (int64_t k = 0; k < g.k; k += kGemmDepth) {
      VF acc[ROWS];
      sum_lanes<Weights, 1, ROWS, kAhead>(g, buffers.a, b, k, std::min(g.k, k + kGemmDepth), acc);
#pragma GCC unroll 8
      for (int c = 0; c < ROWS; ++c) hn::Store(acc[c], d, kept[count + c]);
      count += ROWS;
      if (count < kLanes) continue;
      add_kept(kLanes);
      count = 0;
    }
  }
  if (count == 0) return;
  std::fill_n(kept[count], (kLanes - count) * kLanes, 0.0f);
  add_kept(count);
}

template <class Weights, int ROWS, int64_t kAhead>
void dot_one_row(const Gemm& g, const GemmBuffers& buffers, int64_t begin, int64_t end) {
  const int64_t whole = begin + (end - begin) / ROWS * ROWS;
  dot_one<Weights, ROWS, kAhead>(g, buffers, begin, whole);
  dot_one<Weights, 1, kAhead>(g, buffers, whole, end);
}

// Lane m * COLS + c: the sum of row m of A with row c of B over numbers [begin, end) of a block.
template <class Weights, int MR, int COLS>
HWY_INLINE VF dot_block(const Gemm& g, const float* a, const typename Weights::Number* b, int64_t begin,
                        int64_t end) {
  constexpr int64_t kAhead = 2048 / sizeof(*b);
  VF acc[MR * COLS], lanes[kLanes];
  sum_lanes<Weights, MR, COLS, kAhead>(g, a, b, begin, end, acc);
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) lanes[i] = i < MR * COLS ? acc[i < MR * COLS ? i : 0] : hn::Zero(DF());
  return add_lanes(lanes);
}

// Element (row, column) of C, whose columns are `transposed` apart and rows consecutive where that is not 0.
HWY_INLINE float* find_c(const Gemm& g, const GemmBuffers& buffers, int64_t transposed, int64_t row,
                         int64_t column) {
  return buffers.c + (transposed > 0 ? column * transposed + row : row * g.n + column);
}
template <int MR, int COLS>
HWY_INLINE void store_dots(const Gemm& g, int64_t transposed, VF total, float* c) {
  alignas(64) float sums[kLanes];
  hn::Store(total, DF(), sums);
  if (transposed > 0) {
    for (int j = 0; j < COLS; ++j)
      for (int m = 0; m < MR; ++m) c[j * transposed + m] = sums[m * COLS + j];
    return;
  }
  for (int m = 0; m < MR; ++m) std::copy_n(sums + m * COLS, COLS, c + m * g.n);
}

// MR rows of A from `row` on with COLS rows of B. A block of these is read once: rows of A pass it four at a time.
template <class Weights, int MR, int COLS>
void dot_few(const Gemm& g, const GemmBuffers& buffers, int64_t transposed, int64_t row, int64_t column) {
  constexpr int kFirst = std::min({MR, 4, kLanes / COLS}), kRest = MR - kFirst;
  const auto* b = Weights::base(buffers) + column * g.b_col;
  const float *a = buffers.a + row * g.a_row, *rest_a = a + kFirst * g.a_row;
  VF total = hn::Zero(DF()), rest = total;
  for (int64_t k = 0; k < g.k; k += kGemmDepth) {
    const int64_t end = std::min(g.k, k + kGemmDepth);
    const VF sum = dot_block<Weights, kFirst, COLS>(g, a, b, k, end);
    total = k > 0 ? hn::Add(sum, total) : sum;
    if constexpr (kRest > 0) {
      const VF rest_sum = dot_block<Weights, kRest, COLS>(g, rest_a, b, k, end);
      rest = k > 0 ? hn::Add(rest_sum, rest) : rest_sum;
    }
  }
  store_dots<kFirst, COLS>(g, transposed, total, find_c(g, buffers, transposed, row, column));
  if constexpr (kRest > 0)
    store_dots<kRest, COLS>(g, transposed, rest, find_c(g, buffers, transposed, row + kFirst, column));
}

// Rows [row, row + MR) of A with rows [begin, end) of B.
template <class Weights, int MR>
void dot_rows(const Gemm& g, const GemmBuffers& buffers, int64_t transposed, int64_t row, int64_t begin,
              int64_t end) {
  constexpr int kColumns = std::min(MR == 2 ? 8 : 4, std::max(1, kLanes / std::min(MR, 4)));
  int64_t n = begin;
  for (; n + kColumns <= end; n += kColumns) dot_few<Weights, MR, kColumns>(g, buffers, transposed, row, n);
  for (; n < end; ++n)
    for (int i = 0; i < MR; ++i) dot_few<Weights, 1, 1>(g, buffers, transposed, row + i, n);
}

// Columns [begin, end).
template <class Weights, int MR>
void multiply_dots(const Gemm& g, const GemmBuffers& buffers, int64_t begin, int64_t end) {
  if constexpr (MR == 1) {
    // In memory order while A stays in L1; else several rows of B share what L2 delivers. The numbers
    // of a block are one chain per row: four f32 chains hide the latency. Hardware prefetches those.
    if (sizeof(typename Weights::Number) == 4) return dot_one_row<Weights, 4, 0>(g, buffers, begin, end);
    if (g.k <= 8192) return dot_one_row<Weights, 1, 4096>(g, buffers, begin, end);
    return dot_one_row<Weights, 2, 2048>(g, buffers, begin, end);
  } else {
    dot_rows<Weights, MR>(g, buffers, 0, 0, begin, end);
  }
}

template <int MR>
void multiply_rows(const Gemm& g, const GemmBuffers& buffers, int64_t begin, int64_t end) {
  if (g.b_col == 1 && g.b_type == DType::kF32) return multiply_columns<MR>(g, buffers, begin, end);
  if (g.b_type == DType::kF16) return multiply_dots<HalfWeights<true>, MR>(g, buffers, begin, end);
  if (g.b_type == DType::kBF16) return multiply_dots<HalfWeights<false>, MR>(g, buffers, begin, end);
  multiply_dots<F32Weights, MR>(g, buffers, begin, end);
}

// At most kPassRows rows.
void skinny_pass(const Gemm& g, const GemmBuffers& buffers, int64_t begin, int64_t end) {
  switch (g.m) {
    case 1: multiply_rows<1>(g, buffers, begin, end); break;
    case 2: multiply_rows<2>(g, buffers, begin, end); break;
    case 3: multiply_rows<3>(g, buffers, begin, end); break;
    case 4: multiply_rows<4>(g, buffers, begin, end); break;
    case 5: multiply_rows<5>(g, buffers, begin, end); break;
    case 6: multiply_rows<6>(g, buffers, begin, end); break;
    case 7: multiply_rows<7>(g, buffers, begin, end); break;
    default: multiply_rows<8>(g, buffers, begin, end); break;
  }
  if (buffers.bias == nullptr && g.activation == Activation::kNone && buffers.pre == nullptr) return;
  finish_tile(g.activation, buffers.c + begin, buffers.pre == nullptr ? nullptr : buffers.pre + begin,
              buffers.bias == nullptr ? nullptr : buffers.bias + begin, g.n, g.m, end - begin);
}

// Further rows take the same columns in lots; after the first, these are in L2.
void skinny_block(const Gemm& g, const GemmBuffers& buffers, int64_t begin, int64_t end) {
  Gemm pass = g;
  GemmBuffers at = buffers;
  for (int64_t row = 0; row < g.m; row += kPassRows) {
    pass.m = std::min(kPassRows, g.m - row);
    at.a = buffers.a + row * g.a_row;
    at.c = buffers.c + row * g.n;
    at.pre = buffers.pre == nullptr ? nullptr : buffers.pre + row * g.n;
    skinny_pass(pass, at, begin, end);
  }
}

// Rows of A pass the same rows of B, which are in L2 after the first pass.
void transposed_dots(const Gemm& g, const GemmBuffers& buffers, int64_t begin, int64_t end) {
  int64_t row = 0;
  for (; row + kPassRows <= g.m; row += kPassRows)
    dot_rows<F32Weights, kPassRows>(g, buffers, g.m, row, begin, end);
  for (; row + 4 <= g.m; row += 4) dot_rows<F32Weights, 4>(g, buffers, g.m, row, begin, end);
  for (; row < g.m; ++row) dot_rows<F32Weights, 1>(g, buffers, g.m, row, begin, end);
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(skinny_block);
HWY_EXPORT(transposed_dots);

int64_t skinny_gemm_tasks(const Gemm& g) {
  if (g.m == 0 || g.n == 0 || g.k == 0 || !is_skinny(g)) return 0;
  return (g.n + skinny_grain(g) - 1) / skinny_grain(g);
}

void run_skinny_gemm_task(const Gemm& g, const GemmBuffers& buffers, int64_t task) {
  const int64_t grain = skinny_grain(g);
  HWY_DYNAMIC_DISPATCH(skinny_block)(g, buffers, task * grain, std::min(g.n, (task + 1) * grain));
}

void run_transposed_dots(const Gemm& g, const GemmBuffers& buffers, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(transposed_dots)(g, buffers, begin, end);
}

}  // namespace tessera::cpu
#endif
