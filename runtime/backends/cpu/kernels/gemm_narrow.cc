// One thread of a Zen 5 (AVX-512, busy), ms and in brackets the packed kernel's: 4096 x 1024 by 16 columns, B transposed 0.80
// (3.40), B by rows 0.91 (2.43); sums over 4096 rows, 16 x 1024 1.21 (1.33), 1024 x 16 1.42 (3.50). With 64 columns 2.80
// (6.12), 2.25 (5.08), 3.53 (3.62), 3.39 (5.94).
#include "runtime/backends/cpu/kernels/gemm_narrow.h"

#include <algorithm>

#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/gemm_narrow.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/gemm_finish-inl.h"

#ifndef TSR_GEMM_NARROW_CC_ONCE_
#define TSR_GEMM_NARROW_CC_ONCE_
namespace tessera::cpu {
namespace {

constexpr int64_t kMostNarrow = 64;         // rows or columns
constexpr int64_t kNarrowRowsPerTask = 64;  // of a long A
constexpr int64_t kWidePerTask = 96;        // columns of the wide operand; two panels of the widest vectors
constexpr int64_t kColumnUnit = 16;         // floats of the widest vector

int64_t narrow_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

enum class NarrowForm : uint8_t {
  kNone,
  kDots,     // row-major A, transposed B: dot products of their rows
  kRows,     // row-major A, row-major B: B packed, A read along its rows
  kColumns,  // column-major A, row-major B: sums of outer products of their rows
};

NarrowForm narrow_form(const Gemm& g) {
  if (g.adds || g.tf32 || g.b_type != DType::kF32 || g.m == 0 || g.n == 0 || g.k == 0)
    return NarrowForm::kNone;
  const bool is_long = g.m > kSkinnyRows && g.n <= kMostNarrow && g.a_col == 1;
  if (g.b_col != 1) return is_long && g.n > 1 && g.b_row == 1 ? NarrowForm::kDots : NarrowForm::kNone;
  if (is_long) return NarrowForm::kRows;
  return g.a_row == 1 && std::min(g.m, g.n) <= kMostNarrow ? NarrowForm::kColumns : NarrowForm::kNone;
}

int64_t packed_columns(const Gemm& g) { return narrow_ceil_div(g.n, kColumnUnit) * kColumnUnit; }

// The operands of a product by columns: C or its transpose = sum over k of few[k, i] * wide[k, j].
struct ColumnOperands {
  const float *few, *wide;
  int64_t few_count, wide_count, few_row, wide_row;
  bool is_transposed;

  ColumnOperands(const Gemm& g, const GemmBuffers& b) {
    is_transposed = g.n < g.m;
    few = is_transposed ? b.b : b.a;
    wide = is_transposed ? b.a : b.b;
    few_count = is_transposed ? g.n : g.m;
    wide_count = is_transposed ? g.m : g.n;
    few_row = is_transposed ? g.b_row : g.a_col;
    wide_row = is_transposed ? g.a_col : g.b_row;
  }
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

void finish_narrow(const Gemm& g, const GemmBuffers& b, int64_t row, int64_t column, int64_t rows,
                   int64_t columns) {
  if (b.bias == nullptr && g.activation == Activation::kNone && b.pre == nullptr) return;
  finish_tile(g.activation, b.c + row * g.n + column, b.pre == nullptr ? nullptr : b.pre + row * g.n + column,
              b.bias == nullptr ? nullptr : b.bias + column, g.n, rows, columns);
}

// Panels of all packed columns for MR rows of A; sums [MR, ld].
template <int MR>
void multiply_long_rows(int64_t k_count, const float* a, int64_t a_row, const float* b, int64_t ld,
                        float* sums, bool accumulate) {
  int64_t column = 0;
  for (; column + 3 * kLanes <= ld; column += 3 * kLanes)
    micro_kernel<MR, 3, false>(k_count, a, a_row, 1, b + column, ld, sums + column, ld, accumulate);
  if (column + 2 * kLanes <= ld) {
    micro_kernel<MR, 2, false>(k_count, a, a_row, 1, b + column, ld, sums + column, ld, accumulate);
    column += 2 * kLanes;
  }
  if (column < ld)
    micro_kernel<MR, 1, false>(k_count, a, a_row, 1, b + column, ld, sums + column, ld, accumulate);
}

template <int MR>
void multiply_long_tile(const Gemm& g, const GemmBuffers& buffers, const float* packed_b, int64_t row) {
  const int64_t ld = packed_columns(g);
  alignas(64) float sums[MR * kMostNarrow];
  for (int64_t k = 0; k < g.k; k += kGemmDepth)
    multiply_long_rows<MR>(std::min(kGemmDepth, g.k - k), buffers.a + row * g.a_row + k, g.a_row,
                           packed_b + k * ld, ld, sums, k > 0);
  for (int64_t i = 0; i < MR; ++i) std::copy_n(sums + i * ld, g.n, buffers.c + (row + i) * g.n);
}

void narrow_rows(const Gemm& g, const GemmBuffers& buffers, const Pool& pool) {
  float* const packed_b = static_cast<float*>(buffers.workspace);
  const int64_t ld = packed_columns(g);
  pool.parallel_ranges(g.k, kGemmDepth, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      std::copy_n(buffers.b + k * g.b_row, g.n, packed_b + k * ld);
      std::fill_n(packed_b + k * ld + g.n, ld - g.n, 0.0f);
    }
  });
  pool.parallel_for(narrow_ceil_div(g.m, kNarrowRowsPerTask), [&](int64_t task) {
    const int64_t begin = task * kNarrowRowsPerTask, end = std::min(g.m, begin + kNarrowRowsPerTask);
    int64_t row = begin;
    for (; row + kMR <= end; row += kMR) multiply_long_tile<kMR>(g, buffers, packed_b, row);
    for (; row < end; ++row) multiply_long_tile<1>(g, buffers, packed_b, row);
    finish_narrow(g, buffers, begin, 0, end - begin, g.n);
  });
}

// Lines of a piece of `rows` rows of the wide operand, which come next.
void prefetch_wide(const float* wide, int64_t wide_row, int64_t rows, int64_t columns) {
  for (int64_t k = 0; k < rows; ++k)
    for (int64_t j = 0; j < columns; j += 16) __builtin_prefetch(wide + k * wide_row + j, 0, 2);
}

// Columns [begin, end) of the wide operand.
void multiply_wide(const Gemm& g, const GemmBuffers& buffers, const Pool& pool, int64_t begin, int64_t end) {
  const ColumnOperands o(g, buffers);
  const int64_t panels = narrow_ceil_div(o.few_count, kMR), ld = kWidePerTask;
  Scratch scratch(pool, panels * kMR * (ld + kGemmDepth) + kGemmDepth * kNR);
  float* const sums = scratch.floats(panels * kMR * ld);
  float* const packed_few = scratch.floats(panels * kMR * kGemmDepth);
  float* const last_wide = scratch.floats(kGemmDepth * kNR);  // of fewer columns than a panel has
  for (int64_t k = 0; k < g.k; k += kGemmDepth) {
    const int64_t k_count = std::min(kGemmDepth, g.k - k),
                  next_count = std::min(kGemmDepth, g.k - k - k_count);
    for (int64_t p = 0; p < panels; ++p)
      pack_a_panel(o.few + k * o.few_row + p * kMR, 1, o.few_row,
                   std::min<int64_t>(kMR, o.few_count - p * kMR), k_count, packed_few + p * kMR * kGemmDepth);
    for (int64_t column = begin; column < end; column += kNR) {
      const int64_t columns = std::min<int64_t>(kNR, end - column);
      const float* wide = o.wide + k * o.wide_row + column;
      int64_t wide_row = o.wide_row;
      if (columns < kNR) {
        pack_b_panel(wide, o.wide_row, 1, columns, k_count, last_wide);
        wide = last_wide, wide_row = kNR;
      }
      for (int64_t p = 0; p < panels; ++p) {
        // A piece of the same columns in the next block.
        const int64_t from = next_count * p / panels, to = next_count * (p + 1) / panels;
        prefetch_wide(o.wide + (k + k_count + from) * o.wide_row + column, o.wide_row, to - from, columns);
        micro_kernel<kMR, kNV, true>(k_count, packed_few + p * kMR * kGemmDepth, 1, kMR, wide, wide_row,
                                     sums + p * kMR * ld + (column - begin), ld, k > 0);
      }
    }
  }
  if (o.is_transposed) {
    for (int64_t j = begin; j < end; ++j)
      for (int64_t i = 0; i < o.few_count; ++i) buffers.c[j * g.n + i] = sums[i * ld + j - begin];
    finish_narrow(g, buffers, begin, 0, end - begin, g.n);
  } else {
    for (int64_t i = 0; i < o.few_count; ++i)
      std::copy_n(sums + i * ld, end - begin, buffers.c + i * g.n + begin);
    finish_narrow(g, buffers, 0, begin, g.m, end - begin);
  }
}

void narrow_columns(const Gemm& g, const GemmBuffers& buffers, const Pool& pool) {
  static_assert(kWidePerTask % kNR == 0);
  const int64_t wide = std::max(g.m, g.n);
  pool.parallel_for(narrow_ceil_div(wide, kWidePerTask), [&](int64_t task) {
    multiply_wide(g, buffers, pool, task * kWidePerTask, std::min(wide, (task + 1) * kWidePerTask));
  });
}

// C^T = B^T A^T: rows of the transposed B by rows of A.
void narrow_dots(const Gemm& g, const GemmBuffers& buffers, const Pool& pool) {
  const Gemm dots{.m = g.n, .n = g.m, .k = g.k, .a_row = g.b_col, .a_col = 1, .b_row = 1, .b_col = g.a_row};
  const GemmBuffers swapped{.a = buffers.b, .b = buffers.a, .c = buffers.c};
  pool.parallel_ranges(g.m, kNarrowRowsPerTask, [&](int64_t begin, int64_t end) {
    run_transposed_dots(dots, swapped, begin, end);
    finish_narrow(g, buffers, begin, 0, end - begin, g.n);
  });
}

void narrow_gemm(const Gemm& g, const GemmBuffers& buffers, const Pool& pool) {
  switch (narrow_form(g)) {
    case NarrowForm::kDots: return narrow_dots(g, buffers, pool);
    case NarrowForm::kRows: return narrow_rows(g, buffers, pool);
    default: return narrow_columns(g, buffers, pool);
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(narrow_gemm);

bool is_narrow_gemm(const Gemm& g) { return narrow_form(g) != NarrowForm::kNone; }

int64_t narrow_gemm_workspace_bytes(const Gemm& g) {
  return narrow_form(g) == NarrowForm::kRows ? g.k * packed_columns(g) * static_cast<int64_t>(sizeof(float))
                                             : 0;
}

void run_narrow_gemm(const Gemm& g, const GemmBuffers& buffers, const Pool& pool) {
  HWY_DYNAMIC_DISPATCH(narrow_gemm)(g, buffers, pool);
}

}  // namespace tessera::cpu
#endif
