#include "runtime/backends/cpu/kernels/gemm.h"

#include <algorithm>
#include <cmath>

#include "graph/base/tf32.h"
#include "runtime/backends/cpu/kernels/gemm_narrow.h"
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

constexpr int64_t kPackedFloats = int64_t{3} << 19;  // 6 MiB of packed A: stays in L3
constexpr int64_t kRowUnit = 8;                      // a multiple of every MR
constexpr int64_t kShallowDepth = 64;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How a block of k is summed: see gemm.h.
bool sums_lanes(const Gemm& g) { return g.b_col != 1 && !g.tf32; }

// Numbers of k in packed A; vectors end at them.
int64_t packed_depth(const Gemm& g, int64_t depth) {
  constexpr int64_t kMostLanes = 16;
  return sums_lanes(g) ? ceil_div(depth, kMostLanes) * kMostLanes : depth;
}

// Partition of a Gemm, by shape alone.
struct GemmChunks {
  int64_t chunk_rows, chunk_depth;  // of A, packed at a time

  explicit GemmChunks(const Gemm& g) {
    const int64_t rows = ceil_div(g.m, kRowUnit) * kRowUnit;
    chunk_depth = std::min(
        packed_depth(g, g.k),
        std::max(kPackedFloats / std::min<int64_t>(rows, 1024) / kGemmDepth * kGemmDepth, kGemmDepth));
    chunk_rows = std::min(rows, std::max(kPackedFloats / chunk_depth / kRowUnit * kRowUnit, kRowUnit));
  }
};

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
template <int NV>
HWY_INLINE void multiply_tile(bool by_lanes, int64_t k_count, const float* a, const float* b, float* c,
                              int64_t ldc, bool accumulate) {
  if (by_lanes) return lanes_kernel<kMR, NV>(ceil_div(k_count, kLanes), a, b, c, ldc, accumulate);
  micro_kernel<kMR, NV, true>(k_count, a, 1, kMR, b, kNR, c, ldc, accumulate);
}
void tile(bool by_lanes, int64_t k_count, const float* a, const float* b, float* c, int64_t ldc, int64_t rows,
          int64_t columns, bool accumulate) {
  if (rows == kMR && columns == kNR) return multiply_tile<kNV>(by_lanes, k_count, a, b, c, ldc, accumulate);
  alignas(64) float buffer[kMR * kNR];
  if (columns <= kLanes) {
    multiply_tile<1>(by_lanes, k_count, a, b, buffer, kNR, false);
  } else if (columns <= 2 * kLanes) {
    multiply_tile<2>(by_lanes, k_count, a, b, buffer, kNR, false);
  } else {
    multiply_tile<3>(by_lanes, k_count, a, b, buffer, kNR, false);
  }
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      c[i * ldc + j] = accumulate ? buffer[i * kNR + j] + c[i * ldc + j] : buffer[i * kNR + j];
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

template <class Order>
void pack_b(const Gemm& g, const std::byte* b, int64_t columns, int64_t k_count, float* panel, Order order) {
  const auto* b_16 = reinterpret_cast<const uint16_t*>(b);
  if (g.b_type == DType::kF16)
    return pack_b_panel_16<true>(b_16, g.b_row, g.b_col, columns, k_count, panel, order);
  if (g.b_type == DType::kBF16)
    return pack_b_panel_16<false>(b_16, g.b_row, g.b_col, columns, k_count, panel, order);
  pack_b_panel(reinterpret_cast<const float*>(b), g.b_row, g.b_col, columns, k_count, panel, order);
}

// A block of NR columns of B.
void pack_b_block(const Gemm& g, const std::byte* b, int64_t columns, int64_t k_count, float* panel) {
  if (sums_lanes(g)) {
    const LaneOrder order{.steps = ceil_div(k_count, kLanes)};
    pack_b(g, b, columns, k_count, panel, order);
    clear_past_end(order, k_count, kNR, panel);
  } else {
    pack_b(g, b, columns, k_count, panel, PlainOrder());
  }
  if (g.tf32) round_to_tf32(panel, k_count * kNR);
}

// MR rows of A or fewer, numbers [k, k + k_count) of a block of `block_count`.
void pack_a_part(const Gemm& g, const float* a, int64_t rows, int64_t block_count, int64_t k, int64_t k_count,
                 float* panel) {
  if (!sums_lanes(g)) return pack_a_panel(a, g.a_row, g.a_col, rows, k_count, panel + k * kMR);
  LaneOrder order{.steps = ceil_div(block_count, kLanes), .first = k};
  pack_a_panel(a, g.a_row, g.a_col, rows, k_count, panel, order);
  order.first = 0;
  if (k + k_count == block_count) clear_past_end(order, block_count, kMR, panel);
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
  Scratch scratch(pool, kGemmDepth * kNR);
  float* const b_panel = scratch.floats(kGemmDepth * kNR);
  const int64_t depth = packed_depth(g, k_end - k_begin);
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const int64_t column = panel * kNR;
    const int64_t columns = std::min<int64_t>(kNR, g.n - column);
    for (int64_t k = k_begin; k < k_end; k += kGemmDepth) {
      const int64_t k_count = std::min(kGemmDepth, k_end - k);
      pack_b_block(g, find_b(g, buffers, k, column), columns, k_count, b_panel);
      // The next block, in the order of these two loops.
      const bool same_panel = k + kGemmDepth < k_end;
      const int64_t next_k = same_panel ? k + kGemmDepth : k_begin;
      const int64_t next_column = same_panel ? column : column + kNR;
      const bool has_next = same_panel || panel + 1 < panel_end;
      const std::byte* next = find_b(g, buffers, next_k, next_column);
      const int64_t next_columns = std::min<int64_t>(kNR, g.n - next_column);
      const int64_t next_count = std::min(kGemmDepth, k_end - next_k);
      const int64_t tiles = ceil_div(row_end - row_begin, kMR);
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t row = row_begin + t * kMR;
        const int64_t rows = std::min<int64_t>(kMR, row_end - row);
        if (has_next) prefetch_block(g, next, next_columns, next_count, t, tiles);
        const float* a_panel = packed_a + (row - chunk_row) * depth + (k - k_begin) * kMR;
        tile(sums_lanes(g), k_count, a_panel, b_panel, buffers.c + row * g.n + column, g.n, rows, columns,
             g.adds || k > 0);
        if (k + k_count == g.k) finish(g, buffers, row, column, rows, columns);
      }
    }
  }
}

void packed_gemm(const Gemm& g, const GemmBuffers& buffers, const Pool& pool) {
  const GemmChunks chunks(g);
  float* packed_a = static_cast<float*>(buffers.workspace);
  // The planned rows are a multiple of the widest panel; narrower panels may end before them. Touching the
  // end makes every run use the planned bytes, whatever the vectors.
  packed_a[chunks.chunk_rows * chunks.chunk_depth - 1] = 0;
  const int64_t panels = ceil_div(g.n, kNR);
  for (int64_t chunk_row = 0; chunk_row < g.m; chunk_row += chunks.chunk_rows) {
    const int64_t rows = std::min(chunks.chunk_rows, g.m - chunk_row);
    for (int64_t k_begin = 0; k_begin < g.k; k_begin += chunks.chunk_depth) {
      const int64_t k_end = std::min(g.k, k_begin + chunks.chunk_depth);
      const int64_t depth = packed_depth(g, k_end - k_begin);

      // 64 rows at a time and 64 deep, so that a column-major A is read in whole cache lines.
      constexpr int64_t kPackRows = 64, kPackDepth = 64;
      pool.parallel_ranges(rows, kPackRows, [&](int64_t begin, int64_t end) {
        for (int64_t k = k_begin; k < k_end; k += kPackDepth) {
          const int64_t block = k / kGemmDepth * kGemmDepth,
                        block_count = std::min(kGemmDepth, k_end - block);
          for (int64_t i = begin; i < end; i += kMR)
            pack_a_part(g, buffers.a + (chunk_row + i) * g.a_row + k * g.a_col,
                        std::min<int64_t>(kMR, end - i), block_count, k - block,
                        std::min(kPackDepth, k_end - k), packed_a + i * depth + (block - k_begin) * kMR);
        }
        if (g.tf32) round_to_tf32(packed_a + begin * depth, ceil_div(end - begin, kMR) * kMR * depth);
      });

      // Strips of up to 8 panels and at most 1024 rows; at least 32 tasks where the shape is large enough.
      // A small K makes writing C the whole cost: a task takes whole rows, if they suffice for all cores.
      const bool is_shallow = g.k <= kShallowDepth && ceil_div(rows, 128) >= 16;
      const int64_t panels_per_task = is_shallow ? panels : std::clamp<int64_t>(panels / 48, 1, 8);
      const int64_t panel_tasks = ceil_div(panels, panels_per_task);
      const int64_t row_pieces =
          is_shallow
              ? ceil_div(rows, 128)
              : std::max(ceil_div(rows, 1024), std::clamp<int64_t>(32 / panel_tasks, 1, ceil_div(rows, 128)));
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

void gemm(const Gemm& g, const GemmBuffers& buffers, const Pool& pool) {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0 && g.adds) return;
  if (g.k == 0) {
    std::fill_n(buffers.c, g.m * g.n, 0.0f);
    finish(g, buffers, 0, 0, g.m, g.n);
  } else {
    packed_gemm(g, buffers, pool);
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(gemm);

int64_t gemm_workspace_bytes(const Gemm& g) {
  if (g.m == 0 || g.n == 0 || g.k == 0 || skinny_gemm_tasks(g) > 0) return 0;
  if (is_narrow_gemm(g)) return narrow_gemm_workspace_bytes(g);
  const GemmChunks chunks(g);
  return chunks.chunk_rows * chunks.chunk_depth * static_cast<int64_t>(sizeof(float));
}

void run_gemm(const Gemm& g, const GemmBuffers& buffers, const Pool& pool) {
  if (const int64_t tasks = skinny_gemm_tasks(g); tasks > 0)
    return pool.parallel_for(tasks, [&](int64_t task) { run_skinny_gemm_task(g, buffers, task); });
  if (is_narrow_gemm(g)) return run_narrow_gemm(g, buffers, pool);
  HWY_DYNAMIC_DISPATCH(gemm)(g, buffers, pool);
}

}  // namespace tessera::cpu
#endif
