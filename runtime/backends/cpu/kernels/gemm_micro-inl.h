// Building blocks of Gemm, per instruction set: register tile, micro-kernels, packing of panels.
#if defined(TSR_GEMM_MICRO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TSR_GEMM_MICRO_INL_H_
#undef TSR_GEMM_MICRO_INL_H_
#else
#define TSR_GEMM_MICRO_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));

// Register tile: MR x (NV vectors). 32 registers hold 8 x 3 accumulators, 16 hold 4 x 3. GCC 12 keeps the
// array in registers as long as every index is a constant after unrolling and nothing takes an element's
// address.
inline constexpr int kMR = kLanes == 16 ? 8 : 4;
inline constexpr int kNV = 3;
inline constexpr int kNR = kNV * kLanes;

// acc[MR][NV] = sum over k of a(i, k) * b[k * ldb + ...], one chain of multiply-adds.
//   a(i, k) = a[i * a_row + k * a_col]; packed panels have a_row 1 and a_col MR.
template <int MR, int NV, bool kPackedA>
HWY_INLINE void sum_chain(int64_t k_count, const float* HWY_RESTRICT a, int64_t a_row, int64_t a_col,
                          const float* HWY_RESTRICT b, int64_t ldb, VF (&acc)[MR][NV]) {
  const DF d;
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) acc[i][j] = hn::Zero(d);
  }
  for (int64_t k = 0; k < k_count; ++k) {
    VF row[NV];
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) row[j] = hn::LoadU(d, b + j * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
      const VF value = hn::Set(d, kPackedA ? a[i] : a[i * a_row]);
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) acc[i][j] = hn::MulAdd(value, row[j], acc[i][j]);
    }
    a += kPackedA ? MR : a_col;
    b += ldb;
  }
}

// acc += c, and c = acc.
template <int MR, int NV>
HWY_INLINE void add_sums(const float* HWY_RESTRICT c, int64_t ldc, VF (&acc)[MR][NV]) {
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) acc[i][j] = hn::Add(acc[i][j], hn::LoadU(DF(), c + i * ldc + j * kLanes));
  }
}
template <int MR, int NV>
HWY_INLINE void store_sums(const VF (&acc)[MR][NV], float* HWY_RESTRICT c, int64_t ldc) {
#pragma GCC unroll 8
  for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) hn::StoreU(acc[i][j], DF(), c + i * ldc + j * kLanes);
  }
}

// C = the chain's sums, or C += them.
template <int MR, int NV, bool kPackedA>
HWY_INLINE void micro_kernel(int64_t k_count, const float* HWY_RESTRICT a, int64_t a_row, int64_t a_col,
                             const float* HWY_RESTRICT b, int64_t ldb, float* HWY_RESTRICT c, int64_t ldc,
                             bool accumulate) {
  VF acc[MR][NV];
  sum_chain<MR, NV, kPackedA>(k_count, a, a_row, a_col, b, ldb, acc);
  if (accumulate) add_sums<MR, NV>(c, ldc, acc);
  store_sums<MR, NV>(acc, c, ldc);
}

// lanes_kernel with chains of one or two numbers, whose sums stay in registers.
template <int MR, int NV, int kSteps>
HWY_INLINE void short_lanes_kernel(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                                   float* HWY_RESTRICT c, int64_t ldc, bool accumulate) {
  const DF d;
  VF sums[MR][NV];
  const auto add_lane = [&](bool is_first) HWY_ATTR {
#pragma GCC unroll 8
    for (int i = 0; i < MR; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) {
        VF chain = hn::Zero(d);
#pragma GCC unroll 2
        for (int s = 0; s < kSteps; ++s)
          chain = hn::MulAdd(hn::Set(d, a[s * MR + i]), hn::LoadU(d, b + s * kNR + j * kLanes), chain);
        sums[i][j] = is_first ? chain : hn::Add(chain, sums[i][j]);
      }
    }
    a += kSteps * MR, b += kSteps * kNR;
  };
  add_lane(true);
  for (int lane = 1; lane < kLanes; ++lane) add_lane(false);
  if (accumulate) add_sums<MR, NV>(c, ldc, sums);
  store_sums<MR, NV>(sums, c, ldc);
}

// C = sums of packed panels by lanes, or C += them: `steps` rows of the panels make a chain, and the kLanes chains are
// added in ascending order.
template <int MR, int NV>
HWY_INLINE void lanes_kernel(int64_t steps, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                             float* HWY_RESTRICT c, int64_t ldc, bool accumulate) {
  if (steps == 1) return short_lanes_kernel<MR, NV, 1>(a, b, c, ldc, accumulate);
  if (steps == 2) return short_lanes_kernel<MR, NV, 2>(a, b, c, ldc, accumulate);
  alignas(64) float sums[MR * NV * kLanes];
  for (int lane = 0; lane < kLanes; ++lane, a += steps * MR, b += steps * kNR) {
    VF acc[MR][NV];
    sum_chain<MR, NV, true>(steps, a, 1, MR, b, kNR, acc);
    if (lane > 0) add_sums<MR, NV>(sums, NV * kLanes, acc);
    if (lane + 1 < kLanes) {
      store_sums<MR, NV>(acc, sums, NV * kLanes);
    } else {
      if (accumulate) add_sums<MR, NV>(c, ldc, acc);
      store_sums<MR, NV>(acc, c, ldc);
    }
  }
}

// The row of number k of a block in a packed panel: k, or, for a product by lanes,
// (k mod lanes) * steps + k / lanes, so that a lane's numbers are consecutive.
// `steps`: number of values of k / lanes. Rows past the block's end are zero.
struct PlainOrder {
  HWY_INLINE int64_t row(int64_t k) const { return k; }
  static HWY_INLINE int64_t stride() { return 1; }  // rows from an even k, or one of four, to the next
};
struct LaneOrder {
  int64_t steps, first = 0;  // `first`: number of the block that is packed as k = 0, a multiple of the lanes
  HWY_INLINE int64_t row(int64_t k) const {
    const auto number = static_cast<uint32_t>(first + k);
    return number % kLanes * steps + number / kLanes;
  }
  HWY_INLINE int64_t stride() const { return steps; }
};

// Rows r, r + 4, r + 8, ... of a row-major matrix, four consecutive columns each, concatenated in one vector.
template <class D>
HWY_INLINE hn::Vec<D> load_blocks(D d, const float* p, int64_t stride) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, p);
  } else {
    const hn::Half<D> dh;
    constexpr int64_t kHalf = static_cast<int64_t>(hn::MaxLanes(D())) / 2;
    return hn::Combine(d, load_blocks(dh, p + kHalf * stride, stride), load_blocks(dh, p, stride));
  }
}

// out[row(k) * out_stride + i] = in[i * in_stride + k] for i < lanes of D, k < count.
template <class D, class Order = PlainOrder>
HWY_INLINE void pack_transposed(D d, const float* HWY_RESTRICT in, int64_t in_stride, int64_t count,
                                float* HWY_RESTRICT out, int64_t out_stride, Order order = {}) {
  const int64_t next = order.stride() * out_stride;
  const hn::Repartition<double, D> dd;
  int64_t k = 0;
  for (; k + 4 <= count; k += 4) {
    const auto r0 = load_blocks(d, in + k, in_stride);
    const auto r1 = load_blocks(d, in + in_stride + k, in_stride);
    const auto r2 = load_blocks(d, in + 2 * in_stride + k, in_stride);
    const auto r3 = load_blocks(d, in + 3 * in_stride + k, in_stride);
    const auto lo01 = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1));
    const auto hi01 = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1));
    const auto lo23 = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
    const auto hi23 = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
    float* o = out + order.row(k) * out_stride;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, lo01, lo23)), d, o);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, lo01, lo23)), d, o + next);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, hi01, hi23)), d, o + 2 * next);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, hi01, hi23)), d, o + 3 * next);
  }
  for (; k < count; ++k)
    for (int i = 0; i < static_cast<int>(hn::MaxLanes(D())); ++i)
      out[order.row(k) * out_stride + i] = in[i * in_stride + k];
}

// Zero in the rows of numbers past the end of a block of k_count.
HWY_INLINE void clear_past_end(LaneOrder order, int64_t k_count, int64_t width, float* out) {
  for (int64_t k = k_count; k < order.steps * kLanes; ++k)
    std::fill_n(out + order.row(k) * width, width, 0.0f);
}

// One panel of A: MR rows (the missing ones zero), k_count deep, as out[row(k) * MR + i].
template <class Order = PlainOrder>
HWY_INLINE void pack_a_panel(const float* a, int64_t a_row, int64_t a_col, int64_t rows, int64_t k_count,
                             float* HWY_RESTRICT out, Order order = {}) {
  const hn::CappedTag<float, kMR> d;
  static_assert(hn::MaxLanes(hn::CappedTag<float, kMR>()) == kMR);
  if (rows == kMR && a_col == 1) {
    pack_transposed(d, a, a_row, k_count, out, kMR, order);
  } else if (rows == kMR) {
    for (int64_t k = 0; k < k_count; ++k)
      hn::StoreU(hn::LoadU(d, a + k * a_col), d, out + order.row(k) * kMR);
  } else {
    for (int64_t k = 0; k < k_count; ++k)
      for (int64_t i = 0; i < kMR; ++i)
        out[order.row(k) * kMR + i] = i < rows ? a[i * a_row + k * a_col] : 0.0f;
  }
}

// NR columns of B (the missing ones zero), k_count deep, as out[row(k) * NR + j].
template <class Order = PlainOrder>
HWY_INLINE void pack_b_panel(const float* b, int64_t b_row, int64_t b_col, int64_t columns, int64_t k_count,
                             float* HWY_RESTRICT out, Order order = {}) {
  const DF d;
  if (b_col == 1 && columns == kNR) {
    for (int64_t k = 0; k < k_count; ++k) {
      const float* in = b + k * b_row;
      for (int j = 0; j < kNV; ++j)
        hn::StoreU(hn::LoadU(d, in + j * kLanes), d, out + order.row(k) * kNR + j * kLanes);
    }
    return;
  }
  if (b_col == 1) {
    for (int64_t k = 0; k < k_count; ++k)
      for (int64_t j = 0; j < kNR; ++j) out[order.row(k) * kNR + j] = j < columns ? b[k * b_row + j] : 0.0f;
    return;
  }
  for (int64_t j = 0; j < kNR; j += kLanes) {
    if (j + kLanes <= columns) {
      pack_transposed(d, b + j * b_col, b_col, k_count, out + j, kNR, order);
    } else {
      for (int64_t k = 0; k < k_count; ++k)
        for (int64_t i = j; i < j + kLanes; ++i)
          out[order.row(k) * kNR + i] = i < columns ? b[i * b_col + k * b_row] : 0.0f;
    }
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
