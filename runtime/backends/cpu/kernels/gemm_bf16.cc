#include "runtime/backends/cpu/kernels/gemm_bf16.h"

#include <algorithm>

#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/gemm_bf16.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/bf16_vectors-inl.h"
#include "runtime/backends/cpu/kernels/gemm_finish-inl.h"
#include "runtime/backends/cpu/kernels/gemm_pack_16-inl.h"

#ifndef TSR_GEMM_BF16_CC_ONCE_
#define TSR_GEMM_BF16_CC_ONCE_
namespace tessera::cpu {
namespace {

constexpr int64_t kDepth = 256;                     // of a chain, as in Gemm
constexpr int64_t kPackedBytes = int64_t{6} << 20;  // of A: stays in L3
constexpr int64_t kRowUnit = 8;                     // a multiple of every MR
constexpr int64_t kMostRows = 1024;                 // of a task: its sums stay in L2

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How a block of k is summed: see gemm.h.
bool sums_lanes(const Bf16Gemm& g) { return g.b_col != 1; }

// Pairs of numbers of k as they are packed, completed by zeros. Those of lanes end with a pair of vectors.
int64_t pairs_of(const Bf16Gemm& g) {
  constexpr int64_t kMostLanes = 16;
  return sums_lanes(g) ? divide_up(g.k, 2 * kMostLanes) * kMostLanes : divide_up(g.k, 2);
}

// Rows of A that are packed at a time.
int64_t chunk_rows_of(const Bf16Gemm& g) {
  const int64_t most = kPackedBytes / (4 * std::max<int64_t>(pairs_of(g), 1)) / kRowUnit * kRowUnit;
  return std::min(divide_up(g.m, kRowUnit) * kRowUnit, std::max(most, 8 * kRowUnit));
}

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

#undef TSR_BF16_DOT
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
#define TSR_BF16_DOT 1
#else
#define TSR_BF16_DOT 0
#endif

bool cpu_has_bf16_dot() {
#if TSR_BF16_DOT
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

// sum + a.high * b.high, then + a.low * b.low. Written out because Highway 1.0.3 has no target with it.
struct InstructionPairs {
  static HWY_INLINE VF add(VF sum, [[maybe_unused]] VU a, [[maybe_unused]] VU b) {
#if TSR_BF16_DOT
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
#endif
    return sum;
  }
};
struct EmulatedPairs {
  static HWY_INLINE VF add(VF sum, VU a, VU b) {
    sum = hn::MulAdd(widen_high<false>(a), widen_high<false>(b), sum);
    return hn::MulAdd(widen_low<false>(a), widen_low<false>(b), sum);
  }
};

// MR rows of A by NV vectors of B, packed: c[i * NR + ...] = the sums of `chains` chains of `pairs` each, added in ascending
// order, or += them.
template <class Pairs, int NV>
HWY_INLINE void multiply_pairs_tile(int64_t chains, int64_t pairs, const uint32_t* HWY_RESTRICT a,
                                    const uint32_t* HWY_RESTRICT b, float* HWY_RESTRICT c, bool adds) {
  const DU du;
  alignas(64) float sums[kMR * NV * kLanes];
  for (int64_t chain = 0; chain < chains; ++chain) {
    VF acc[kMR][NV];
#pragma GCC unroll 8
    for (int i = 0; i < kMR; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) acc[i][j] = hn::Zero(DF());
    }
    for (int64_t p = 0; p < pairs; ++p) {
      VU row[NV];
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) row[j] = hn::LoadU(du, b + j * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kMR; ++i) {
        const VU value = hn::Set(du, a[i]);
#pragma GCC unroll 8
        for (int j = 0; j < NV; ++j) acc[i][j] = Pairs::add(acc[i][j], value, row[j]);
      }
      a += kMR;
      b += kNR;
    }
    if (chain > 0) add_sums<kMR, NV>(sums, NV * kLanes, acc);
    if (chain + 1 < chains) {
      store_sums<kMR, NV>(acc, sums, NV * kLanes);
    } else {
      if (adds) add_sums<kMR, NV>(c, kNR, acc);
      store_sums<kMR, NV>(acc, c, kNR);
    }
  }
}

template <class Pairs>
void multiply_tile(int64_t chains, int64_t pairs, const uint32_t* a, const uint32_t* b, float* c,
                   int64_t columns, bool adds) {
  if (columns <= kLanes) return multiply_pairs_tile<Pairs, 1>(chains, pairs, a, b, c, adds);
  if (columns <= 2 * kLanes) return multiply_pairs_tile<Pairs, 2>(chains, pairs, a, b, c, adds);
  multiply_pairs_tile<Pairs, 3>(chains, pairs, a, b, c, adds);
}

// out[p * kWidth + i] = numbers 2p and 2p + 1 of row i of `in`; the earlier one is in the high half, which is
// multiplied first.
template <int kWidth, class D>
HWY_INLINE void pack_pairs(D d, const uint16_t* in, int64_t row, int64_t column, int64_t rows,
                           int64_t k_count, uint32_t* HWY_RESTRICT out) {
  constexpr int64_t kStep = static_cast<int64_t>(hn::MaxLanes(D()));
  for (int64_t i = 0; i < kWidth; i += kStep) {
    const auto store = [&](int64_t p, hn::Vec<D> pairs)
                           HWY_ATTR { hn::StoreU(hn::RotateRight<16>(pairs), d, out + p * kWidth + i); };
    if (column == 1) {
      for_row_pairs(d, in + i * row, row, rows - i, k_count, store);
    } else {
      for_column_pairs(d, in + i, column, rows - i, k_count, store);
    }
  }
}

// Likewise for a block summed by lanes: row lane * steps + q of
// `out` holds numbers 2 q kLanes + lane and (2 q + 1) kLanes + lane.
template <int kWidth, class D>
HWY_INLINE void pack_lane_pairs(D d, const uint16_t* in, int64_t row, int64_t column, int64_t rows,
                                int64_t k_count, uint32_t* HWY_RESTRICT out) {
  constexpr int64_t kStep = static_cast<int64_t>(hn::MaxLanes(D()));
  const int64_t steps = divide_up(k_count, 2 * kLanes);
  const auto low_half = hn::Set(d, 0xffffu);
  for (int64_t i = 0; i < kWidth; i += kStep) {
    for (int64_t q = 0; q < steps; ++q) {
      // Neighbours of the first vector of numbers, and of the second.
      alignas(64) uint32_t neighbours[2][kLanes / 2][kStep] = {};
      for (int64_t v = 0; v < 2; ++v) {
        const int64_t k = (2 * q + v) * kLanes, count = std::min<int64_t>(kLanes, k_count - k);
        const auto keep = [&](int64_t p, hn::Vec<D> pairs)
                              HWY_ATTR { hn::Store(pairs, d, neighbours[v][p]); };
        if (column == 1) {
          for_row_pairs(d, in + i * row + k, row, rows - i, count, keep);
        } else {
          for_column_pairs(d, in + i + k * column, column, rows - i, count, keep);
        }
      }
      uint32_t* to = out + q * kWidth + i;
      for (int64_t p = 0; p < kLanes / 2; ++p, to += 2 * steps * kWidth) {
        const auto first = hn::Load(d, neighbours[0][p]), second = hn::Load(d, neighbours[1][p]);
        hn::StoreU(hn::Or(hn::ShiftLeft<16>(first), hn::And(second, low_half)), d, to);
        hn::StoreU(hn::Or(hn::AndNot(low_half, first), hn::ShiftRight<16>(second)), d, to + steps * kWidth);
      }
    }
  }
}

// A block of numbers of k.
template <int kWidth, class D>
void pack_block(const Bf16Gemm& g, D d, const uint16_t* in, int64_t row, int64_t column, int64_t rows,
                int64_t k_count, uint32_t* out) {
  if (sums_lanes(g)) return pack_lane_pairs<kWidth>(d, in, row, column, rows, k_count, out);
  pack_pairs<kWidth>(d, in, row, column, rows, k_count, out);
}

// Rows [row, row + rows) and columns [column, column + columns) of C from a tile of sums.
void store_tile(const Bf16Gemm& g, const Bf16GemmBuffers& buffers, const float* bias, int64_t row,
                int64_t column, int64_t rows, int64_t columns, float* tile) {
  alignas(64) float before[kMR * kNR];
  float* const pre = buffers.pre == nullptr ? nullptr : before;
  finish_tile(g.activation, tile, pre, bias, kNR, rows, columns);
  const auto copy = [&](const float* from, void* to) {
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t at = (row + i) * g.n + column;
      if (g.result == DType::kF32) {
        std::copy_n(from + i * kNR, columns, static_cast<float*>(to) + at);
      } else {
        round_row_to_bf16(from + i * kNR, static_cast<uint16_t*>(to) + at, columns);
      }
    }
  };
  copy(tile, buffers.c);
  if (pre != nullptr) copy(pre, buffers.pre);
}

// Rows [row_begin, row_end) of C, column panels [panel_begin, panel_end). A is packed from `chunk_row` on.
template <class Pairs>
void multiply_strip(const Bf16Gemm& g, const Bf16GemmBuffers& buffers, const Pool& pool,
                    const uint32_t* packed_a, int64_t chunk_row, int64_t row_begin, int64_t row_end,
                    int64_t panel_begin, int64_t panel_end) {
  const int64_t tiles = divide_up(row_end - row_begin, kMR), tile_floats = kMR * kNR;
  Scratch scratch(pool, kDepth / 2 * kNR + tiles * tile_floats);
  auto* const b_panel = reinterpret_cast<uint32_t*>(scratch.floats(kDepth / 2 * kNR));
  float* const sums = scratch.floats(tiles * tile_floats);
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const int64_t column = panel * kNR, columns = std::min<int64_t>(kNR, g.n - column);
    alignas(64) float bias[kNR];
    if (buffers.bias != nullptr && g.result == DType::kF32)
      std::copy_n(static_cast<const float*>(buffers.bias) + column, columns, bias);
    if (buffers.bias != nullptr && g.result != DType::kF32)
      widen_bf16_row(static_cast<const uint16_t*>(buffers.bias) + column, bias, columns);
    for (int64_t k = 0; k == 0 || k < g.k; k += kDepth) {
      const int64_t k_count = std::min(kDepth, g.k - k);
      const uint16_t* b = buffers.b + k * g.b_row + column * g.b_col;
      pack_block<kNR>(g, DU(), b, g.b_col, g.b_row, columns, k_count, b_panel);
      const int64_t chains = sums_lanes(g) ? kLanes : 1, pairs = divide_up(k_count, 2 * chains);
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t row = row_begin + t * kMR;
        const uint32_t* a = packed_a + (row - chunk_row) * pairs_of(g) + k / 2 * kMR;
        float* const tile = sums + t * tile_floats;
        multiply_tile<Pairs>(chains, pairs, a, b_panel, tile, columns, k > 0);
        if (k + k_count == g.k)
          store_tile(g, buffers, buffers.bias == nullptr ? nullptr : bias, row, column,
                     std::min<int64_t>(kMR, row_end - row), columns, tile);
      }
    }
  }
}

template <class Pairs>
void packed_bf16_gemm(const Bf16Gemm& g, const Bf16GemmBuffers& buffers, const Pool& pool) {
  auto* const packed_a = static_cast<uint32_t*>(buffers.workspace);
  const int64_t chunk_rows = chunk_rows_of(g), panels = divide_up(g.n, kNR);
  if (g.k > 0) packed_a[chunk_rows * pairs_of(g) - 1] = 0;  // as in Gemm: every run uses the planned bytes
  for (int64_t chunk_row = 0; chunk_row < g.m; chunk_row += chunk_rows) {
    const int64_t rows = std::min(chunk_rows, g.m - chunk_row);
    pool.parallel_ranges(rows, 4 * kRowUnit, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i += kMR)
        for (int64_t k = 0; k < g.k; k += kDepth)
          pack_block<kMR>(g, hn::CappedTag<uint32_t, kMR>(),
                          buffers.a + (chunk_row + i) * g.a_row + k * g.a_col, g.a_row, g.a_col,
                          std::min<int64_t>(kMR, rows - i), std::min(kDepth, g.k - k),
                          packed_a + i * pairs_of(g) + k / 2 * kMR);
    });
    // Strips of up to 8 panels; at least 32 tasks where the shape is large enough.
    const int64_t panels_per_task = std::clamp<int64_t>(panels / 48, 1, 8);
    const int64_t panel_tasks = divide_up(panels, panels_per_task);
    const int64_t pieces =
        std::max(divide_up(rows, kMostRows), std::clamp<int64_t>(32 / panel_tasks, 1, divide_up(rows, 128)));
    const int64_t rows_per_task = divide_up(divide_up(rows, pieces), kRowUnit) * kRowUnit;
    const int64_t row_tasks = divide_up(rows, rows_per_task);
    pool.parallel_for(panel_tasks * row_tasks, [&](int64_t task) {
      const int64_t row = task % row_tasks * rows_per_task, panel = task / row_tasks * panels_per_task;
      multiply_strip<Pairs>(g, buffers, pool, packed_a, chunk_row, chunk_row + row,
                            chunk_row + std::min(rows, row + rows_per_task), panel,
                            std::min(panels, panel + panels_per_task));
    });
  }
}

void bf16_gemm(const Bf16Gemm& g, const Bf16GemmBuffers& buffers, const Pool& pool) {
  if (cpu_has_bf16_dot()) return packed_bf16_gemm<InstructionPairs>(g, buffers, pool);
  packed_bf16_gemm<EmulatedPairs>(g, buffers, pool);
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(cpu_has_bf16_dot);
HWY_EXPORT(bf16_gemm);

bool has_bf16_products() { return HWY_DYNAMIC_DISPATCH(cpu_has_bf16_dot)(); }

int64_t gemm_workspace_bytes(const Bf16Gemm& g) {
  if (g.m == 0 || g.n == 0) return 0;
  return chunk_rows_of(g) * pairs_of(g) * int64_t{sizeof(uint32_t)};
}

void run_gemm(const Bf16Gemm& g, const Bf16GemmBuffers& buffers, const Pool& pool) {
  if (g.m == 0 || g.n == 0) return;
  HWY_DYNAMIC_DISPATCH(bf16_gemm)(g, buffers, pool);
}

}  // namespace tessera::cpu
#endif
