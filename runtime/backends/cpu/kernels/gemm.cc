#include "runtime/backends/cpu/kernels/gemm.h"

#include <algorithm>
#include <cmath>

#include "graph/base/tf32.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/gemm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/gemm_finish-inl.h"
#include "runtime/backends/cpu/kernels/gemm_pack_16-inl.h"

#ifndef TSR_GEMM_CC_ONCE_
#define TSR_GEMM_CC_ONCE_
namespace tessera::cpu {
namespace {

// Depth of one accumulation pass. 256 x 48 floats of B are 48 KiB, the L1 of current cores; where L1 is 32
// KiB the panel streams from L2 at 16 bytes a cycle, which costs little.
constexpr int64_t kKC = 256;
constexpr int64_t kPackedFloats = int64_t{3} << 19;  // 6 MiB of packed A: stays in L3
constexpr int64_t kRowUnit = 8;                      // a multiple of every MR
constexpr int64_t kSkinny = 8;                       // up to this many rows B is read once, unpacked

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Partition of a Gemm, by shape alone.
struct GemmCut {
  int64_t chunk_rows, chunk_depth;  // of A, packed at a time

  explicit GemmCut(const Gemm& g) {
    const int64_t rows = ceil_div(g.m, kRowUnit) * kRowUnit;
    chunk_depth = std::min(g.k, std::max(kPackedFloats / std::min<int64_t>(rows, 1024) / kKC * kKC, kKC));
    chunk_rows = std::min(rows, std::max(kPackedFloats / chunk_depth / kRowUnit * kRowUnit, kRowUnit));
  }
};

// Columns a task.
int64_t skinny_grain(const Gemm& g) {
  return g.b_col == 1 ? 128 : std::clamp<int64_t>((1 << 15) / g.k / 4 * 4, 4, 1024);
}
bool is_skinny(const Gemm& g) {
  return !g.adds && !g.tf32 && g.b_type == DType::kF32 && g.m <= kSkinny && (g.a_col == 1 || g.m == 1);
}

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

void finish(const Gemm& g, const GemmBuffers& b, int64_t row, int64_t column, int64_t rows, int64_t columns) {
  if (b.bias == nullptr && g.activation == Activation::kNone && b.pre == nullptr) return;
  finish_tile(g.activation, b.c + row * g.n + column, b.pre == nullptr ? nullptr : b.pre + row * g.n + column,
              b.bias == nullptr ? nullptr : b.bias + column, g.n, rows, columns);
}

// One tile from packed panels. With fewer rows than MR or columns than NR, C is written through a buffer.
void tile(int64_t k_count, const float* a, const float* b, float* c, int64_t ldc, int64_t rows,
          int64_t columns, bool accumulate) {
  if (rows == kMR && columns == kNR)
    return micro_kernel<kMR, kNV, true>(k_count, a, 1, kMR, b, kNR, c, ldc, accumulate);
  alignas(64) float buffer[kMR * kNR];
  if (columns <= kLanes) {
    micro_kernel<kMR, 1, true>(k_count, a, 1, kMR, b, kNR, buffer, kNR, false);
  } else if (columns <= 2 * kLanes) {
    micro_kernel<kMR, 2, true>(k_count, a, 1, kMR, b, kNR, buffer, kNR, false);
  } else {
    micro_kernel<kMR, 3, true>(k_count, a, 1, kMR, b, kNR, buffer, kNR, false);
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      c[i * ldc + j] = accumulate ? c[i * ldc + j] + buffer[i * kNR + j] : buffer[i * kNR + j];
}

// Rounds a packed panel to TF32.
void round_to_tf32(float* panel, int64_t count) {
  for (int64_t i = 0; i < count; ++i) panel[i] = tf32_from_f32(panel[i]);
}

// Element (k, column) of B.
const std::byte* find_b(const Gemm& g, const GemmBuffers& b, int64_t k, int64_t column) {
  const auto* base = b.b_16 != nullptr ? reinterpret_cast<const std::byte*>(b.b_16)
                                       : reinterpret_cast<const std::byte*>(b.b);
  return base + (k * g.b_row + column * g.b_col) * g.b_bytes();
}

void pack_b(const Gemm& g, const std::byte* b, int64_t columns, int64_t k_count, float* panel) {
  if (g.b_type == DType::kF16)
    return pack_b_panel_16<true>(reinterpret_cast<const uint16_t*>(b), g.b_row, g.b_col, columns, k_count,
                                 panel);
  if (g.b_type == DType::kBF16)
    return pack_b_panel_16<false>(reinterpret_cast<const uint16_t*>(b), g.b_row, g.b_col, columns, k_count,
                                  panel);
  pack_b_panel(reinterpret_cast<const float*>(b), g.b_row, g.b_col, columns, k_count, panel);
  if (g.tf32) round_to_tf32(panel, k_count * kNR);
}

// Prefetches piece `piece` of `pieces` of the B block that is packed next into L2.
void prefetch_block(const Gemm& g, const std::byte* b, int64_t columns, int64_t k_count, int64_t piece,
                    int64_t pieces) {
  const bool transposed = g.b_col != 1;
  const int64_t lines = transposed ? columns : k_count;
  const int64_t line_stride = (transposed ? g.b_col : g.b_row) * g.b_bytes();
  const int64_t line_bytes = (transposed ? k_count : columns) * g.b_bytes();
  for (int64_t i = lines * piece / pieces; i < lines * (piece + 1) / pieces; ++i)
    for (int64_t j = 0; j < line_bytes + 63; j += 64)
      __builtin_prefetch(b + i * line_stride + std::min(j, line_bytes - 1), 0, 2);
}

// C[row_begin.., column panels] of one chunk: A is packed, B is packed here.
void strip(const Gemm& g, const GemmBuffers& buffers, const Pool& pool, const float* packed_a,
           int64_t chunk_row, int64_t row_begin, int64_t row_end, int64_t k_begin, int64_t k_end,
           int64_t panel_begin, int64_t panel_end) {
  Scratch scratch(pool, kKC * kNR);
  float* const b_panel = scratch.floats(kKC * kNR);
  const int64_t depth = k_end - k_begin;
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const int64_t column = panel * kNR;
    const int64_t columns = std::min<int64_t>(kNR, g.n - column);
    for (int64_t k = k_begin; k < k_end; k += kKC) {
      const int64_t k_count = std::min(kKC, k_end - k);
      pack_b(g, find_b(g, buffers, k, column), columns, k_count, b_panel);
      // The next block, in the order of these two loops.
      const bool same_panel = k + kKC < k_end;
      const int64_t next_k = same_panel ? k + kKC : k_begin;
      const int64_t next_column = same_panel ? column : column + kNR;
      const bool has_next = same_panel || panel + 1 < panel_end;
      const std::byte* next = find_b(g, buffers, next_k, next_column);
      const int64_t next_columns = std::min<int64_t>(kNR, g.n - next_column);
      const int64_t next_count = std::min(kKC, k_end - next_k);
      const int64_t tiles = ceil_div(row_end - row_begin, kMR);
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t row = row_begin + t * kMR;
        const int64_t rows = std::min<int64_t>(kMR, row_end - row);
        if (has_next) prefetch_block(g, next, next_columns, next_count, t, tiles);
        const float* a_panel = packed_a + (row - chunk_row) * depth + (k - k_begin) * kMR;
        tile(k_count, a_panel, b_panel, buffers.c + row * g.n + column, g.n, rows, columns, g.adds || k > 0);
        if (k + k_count == g.k) finish(g, buffers, row, column, rows, columns);
      }
    }
  }
}

void packed_gemm(const Gemm& g, const GemmBuffers& buffers, const Pool& pool) {
  const GemmCut cut(g);
  float* packed_a = static_cast<float*>(buffers.workspace);
  // The planned rows are a multiple of the widest panel; narrower panels may end before them. Touching the
  // end makes every run use the planned bytes, whatever the vectors.
  packed_a[cut.chunk_rows * cut.chunk_depth - 1] = 0;
  const int64_t panels = ceil_div(g.n, kNR);
  for (int64_t chunk_row = 0; chunk_row < g.m; chunk_row += cut.chunk_rows) {
    const int64_t rows = std::min(cut.chunk_rows, g.m - chunk_row);
    for (int64_t k_begin = 0; k_begin < g.k; k_begin += cut.chunk_depth) {
      const int64_t k_end = std::min(g.k, k_begin + cut.chunk_depth);
      const int64_t depth = k_end - k_begin;

      // 64 rows at a time and 64 deep, so that a column-major A is read in whole cache lines.
      constexpr int64_t kPackRows = 64, kPackDepth = 64;
      pool.parallel_ranges(rows, kPackRows, [&](int64_t begin, int64_t end) {
        for (int64_t k = 0; k < depth; k += kPackDepth)
          for (int64_t i = begin; i < end; i += kMR) {
            float* panel = packed_a + i * depth + k * kMR;
            const int64_t k_count = std::min(kPackDepth, depth - k);
            pack_a_panel(buffers.a + (chunk_row + i) * g.a_row + (k_begin + k) * g.a_col, g.a_row, g.a_col,
                         std::min<int64_t>(kMR, end - i), k_count, panel);
            if (g.tf32) round_to_tf32(panel, k_count * kMR);
          }
      });

      // Strips of up to 8 panels and at most 1024 rows; at least 32 tasks where the shape is large enough.
      const int64_t panels_per_task = std::clamp<int64_t>(panels / 48, 1, 8);
      const int64_t panel_tasks = ceil_div(panels, panels_per_task);
      const int64_t row_pieces =
          std::max(ceil_div(rows, 1024), std::clamp<int64_t>(32 / panel_tasks, 1, ceil_div(rows, 128)));
      const int64_t rows_per_task = ceil_div(ceil_div(rows, row_pieces), kRowUnit) * kRowUnit;
      const int64_t row_tasks = ceil_div(rows, rows_per_task);
      pool.parallel_for(panel_tasks * row_tasks, [&](int64_t task) {
        const int64_t row = task % row_tasks * rows_per_task;
        const int64_t panel = task / row_tasks * panels_per_task;
        strip(g, buffers, pool, packed_a, chunk_row, chunk_row + row,
              chunk_row + std::min(rows, row + rows_per_task), k_begin, k_end, panel,
              std::min(panels, panel + panels_per_task));
      });
    }
  }
}

// ---- m <= 8: B is read once, straight from memory; bandwidth is the ceiling. ----

// MR x (NV vectors) of C over all of k, B rows read in place.
template <int MR, int NV>
void skinny_columns(const Gemm& g, const GemmBuffers& buffers, int64_t column) {
  constexpr int64_t kAhead = 16;  // rows of B; the stride is too long for the hardware's prefetchers
  const DF d;
  const float* a = buffers.a;
  const float* b = buffers.b + column;
  VF acc[MR][NV];
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) acc[i][j] = hn::Zero(d);
  }
  for (int64_t k = 0; k < g.k; ++k) {
    const float* ahead = b + std::min(k + kAhead, g.k - 1) * g.b_row;
    VF row[NV];
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) {
      if (j * kLanes % 16 == 0) __builtin_prefetch(ahead + j * kLanes, 0, 3);
      row[j] = hn::LoadU(d, b + k * g.b_row + j * kLanes);
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
      const VF value = hn::Set(d, a[i * g.a_row + k]);
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) acc[i][j] = hn::MulAdd(value, row[j], acc[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) hn::StoreU(acc[i][j], d, buffers.c + i * g.n + column + j * kLanes);
  }
}

// All rows of C, columns [begin, end), B with rows of consecutive columns.
template <int MR>
void skinny_rows(const Gemm& g, const GemmBuffers& buffers, int64_t begin, int64_t end) {
  constexpr int kWide = MR == 1                   ? 8
                        : MR == 2                 ? 4
                        : kLanes == 16 && MR <= 4 ? 4
                        : kLanes == 16            ? 3
                        : MR <= 4                 ? 2
                                                  : 1;
  int64_t j = begin;
  for (; j + kWide * kLanes <= end; j += kWide * kLanes) skinny_columns<MR, kWide>(g, buffers, j);
  for (; j + kLanes <= end; j += kLanes) skinny_columns<MR, 1>(g, buffers, j);
  for (; j < end; ++j) {
    for (int i = 0; i < MR; ++i) {
      float sum = 0;
      for (int64_t k = 0; k < g.k; ++k) sum += buffers.a[i * g.a_row + k] * buffers.b[k * g.b_row + j];
      buffers.c[i * g.n + j] = sum;
    }
  }
}

// MR rows of A against NR_ rows of a transposed B: dot products along k, lanes added at the end.
template <int MR, int COLS>
void skinny_dots(const Gemm& g, const float* a, const float* b, float* c) {
  const DF d;
  VF acc[MR][COLS];
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < COLS; ++j) acc[i][j] = hn::Zero(d);
  }
  int64_t k = 0;
  for (; k + kLanes <= g.k; k += kLanes) {
    VF value[MR];
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) value[i] = hn::LoadU(d, a + i * g.a_row + k);
#pragma GCC unroll 8
    for (int j = 0; j < COLS; ++j) {
      const VF weight = hn::LoadU(d, b + j * g.b_col + k);
#pragma GCC unroll 8
      for (int i = 0; i < MR; ++i) acc[i][j] = hn::MulAdd(value[i], weight, acc[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < COLS; ++j) {
      float sum = hn::GetLane(hn::SumOfLanes(d, acc[i][j]));
      for (int64_t r = k; r < g.k; ++r) sum += a[i * g.a_row + r] * b[j * g.b_col + r];
      c[i * g.n + j] = sum;
    }
  }
}

template <int MR>
void skinny_dot_columns(const Gemm& g, const GemmBuffers& buffers, int64_t row, int64_t begin, int64_t end) {
  int64_t j = begin;
  const float* a = buffers.a + row * g.a_row;
  float* c = buffers.c + row * g.n;
  if constexpr (MR == 1)
    for (; j + 8 <= end; j += 8) skinny_dots<MR, 8>(g, a, buffers.b + j * g.b_col, c + j);
  for (; j + 4 <= end; j += 4) skinny_dots<MR, 4>(g, a, buffers.b + j * g.b_col, c + j);
  for (; j < end; ++j) skinny_dots<MR, 1>(g, a, buffers.b + j * g.b_col, c + j);
}

void skinny_block(const Gemm& g, const GemmBuffers& buffers, int64_t begin, int64_t end) {
  if (g.b_col == 1) {
    switch (g.m) {
      case 1: skinny_rows<1>(g, buffers, begin, end); break;
      case 2: skinny_rows<2>(g, buffers, begin, end); break;
      case 3: skinny_rows<3>(g, buffers, begin, end); break;
      case 4: skinny_rows<4>(g, buffers, begin, end); break;
      case 5: skinny_rows<5>(g, buffers, begin, end); break;
      case 6: skinny_rows<6>(g, buffers, begin, end); break;
      case 7: skinny_rows<7>(g, buffers, begin, end); break;
      default: skinny_rows<8>(g, buffers, begin, end); break;
    }
  } else {
    // A few rows of B stay in L1 while every row of A passes.
    const int64_t few = g.m == 1 ? 8 : 4;
    for (int64_t j = begin; j < end; j += few) {
      const int64_t stop = std::min(end, j + few);
      int64_t row = 0;
      for (; row + 4 <= g.m; row += 4) skinny_dot_columns<4>(g, buffers, row, j, stop);
      if (g.m - row == 3) skinny_dot_columns<3>(g, buffers, row, j, stop);
      if (g.m - row == 2) skinny_dot_columns<2>(g, buffers, row, j, stop);
      if (g.m - row == 1) skinny_dot_columns<1>(g, buffers, row, j, stop);
    }
  }
  finish(g, buffers, 0, begin, g.m, end - begin);
}

void skinny_gemm(const Gemm& g, const GemmBuffers& buffers, const Pool& pool) {
  pool.parallel_ranges(g.n, skinny_grain(g),
                       [&](int64_t begin, int64_t end) { skinny_block(g, buffers, begin, end); });
}

void gemm(const Gemm& g, const GemmBuffers& buffers, const Pool& pool) {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0 && g.adds) return;
  if (g.k == 0) {
    std::fill_n(buffers.c, g.m * g.n, 0.0f);
    finish(g, buffers, 0, 0, g.m, g.n);
  } else if (is_skinny(g)) {
    skinny_gemm(g, buffers, pool);
  } else {
    packed_gemm(g, buffers, pool);
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(gemm);
HWY_EXPORT(skinny_block);

int64_t gemm_workspace_bytes(const Gemm& g) {
  if (g.m == 0 || g.n == 0 || g.k == 0 || is_skinny(g)) return 0;
  const GemmCut cut(g);
  return cut.chunk_rows * cut.chunk_depth * static_cast<int64_t>(sizeof(float));
}

int64_t skinny_gemm_tasks(const Gemm& g) {
  if (g.m == 0 || g.n == 0 || g.k == 0 || !is_skinny(g)) return 0;
  return (g.n + skinny_grain(g) - 1) / skinny_grain(g);
}

void run_skinny_gemm_task(const Gemm& g, const GemmBuffers& buffers, int64_t task) {
  const int64_t grain = skinny_grain(g);
  HWY_DYNAMIC_DISPATCH(skinny_block)(g, buffers, task * grain, std::min(g.n, (task + 1) * grain));
}

void run_gemm(const Gemm& g, const GemmBuffers& buffers, const Pool& pool) {
  HWY_DYNAMIC_DISPATCH(gemm)(g, buffers, pool);
}

}  // namespace tessera::cpu
#endif
