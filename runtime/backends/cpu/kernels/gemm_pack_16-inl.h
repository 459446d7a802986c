// Packing of panels from matrices of 16-bit floats, per instruction set: two numbers in a lane of 32 bits.
#if defined(TSR_GEMM_PACK_16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TSR_GEMM_PACK_16_INL_H_
#undef TSR_GEMM_PACK_16_INL_H_
#else
#define TSR_GEMM_PACK_16_INL_H_
#endif

#include <algorithm>

#include "graph/base/half.h"
#include "runtime/backends/cpu/kernels/gemm_micro-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

using DU = hn::Repartition<uint32_t, DF>;
using VU = hn::Vec<DU>;

// Eight numbers of rows r, r + 4, r + 8, ..., concatenated in one vector (load_blocks for 16 bits).
template <class D>
HWY_INLINE hn::Vec<D> load_blocks_16(D d, const uint16_t* p, int64_t stride) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::BitCast(d, hn::LoadU(hn::Repartition<uint16_t, D>(), p));
  } else {
    const hn::Half<D> half;
    constexpr int64_t kHalf = static_cast<int64_t>(hn::MaxLanes(D())) / 2;
    return hn::Combine(d, load_blocks_16(half, p + kHalf * stride, stride), load_blocks_16(half, p, stride));
  }
}

// body(p, pairs) for each p with 2p < count: lane i of `pairs` holds numbers 2p (low half) and 2p + 1 of row i
// < rows, rows `stride` apart. Numbers past `count` and rows past `rows` are zero.
template <class D, class Body>
HWY_INLINE void for_row_pairs(D d, const uint16_t* in, int64_t stride, int64_t rows, int64_t count,
                              const Body& body) {
  constexpr int64_t kRows = static_cast<int64_t>(hn::MaxLanes(D()));
  const hn::Repartition<double, D> dd;
  const hn::Repartition<float, D> df;
  int64_t p = 0;
  for (; rows >= kRows && 2 * p + 8 <= count; p += 4) {
    const uint16_t* at = in + 2 * p;
    const auto r0 = hn::BitCast(df, load_blocks_16(d, at, stride));
    const auto r1 = hn::BitCast(df, load_blocks_16(d, at + stride, stride));
    const auto r2 = hn::BitCast(df, load_blocks_16(d, at + 2 * stride, stride));
    const auto r3 = hn::BitCast(df, load_blocks_16(d, at + 3 * stride, stride));
    const auto lo01 = hn::BitCast(dd, hn::InterleaveLower(df, r0, r1));
    const auto hi01 = hn::BitCast(dd, hn::InterleaveUpper(df, r0, r1));
    const auto lo23 = hn::BitCast(dd, hn::InterleaveLower(df, r2, r3));
    const auto hi23 = hn::BitCast(dd, hn::InterleaveUpper(df, r2, r3));
    body(p, hn::BitCast(d, hn::InterleaveLower(dd, lo01, lo23)));
    body(p + 1, hn::BitCast(d, hn::InterleaveUpper(dd, lo01, lo23)));
    body(p + 2, hn::BitCast(d, hn::InterleaveLower(dd, hi01, hi23)));
    body(p + 3, hn::BitCast(d, hn::InterleaveUpper(dd, hi01, hi23)));
  }
  for (; 2 * p < count; ++p) {
    alignas(64) uint32_t pairs[kRows] = {};
    for (int64_t i = 0; i < std::min(rows, kRows); ++i) {
      const uint16_t* at = in + i * stride + 2 * p;
      pairs[i] = at[0] | (2 * p + 1 < count ? uint32_t{at[1]} << 16 : 0);
    }
    body(p, hn::Load(d, pairs));
  }
}

// Likewise for rows whose numbers are `stride` apart; rows are consecutive.
template <class D, class Body>
HWY_INLINE void for_column_pairs(D d, const uint16_t* in, int64_t stride, int64_t rows, int64_t count,
                                 const Body& body) {
  constexpr int64_t kRows = static_cast<int64_t>(hn::MaxLanes(D()));
  const hn::Rebind<uint16_t, D> d16;
  for (int64_t p = 0; 2 * p < count; ++p) {
    const uint16_t *first = in + 2 * p * stride, *second = 2 * p + 1 < count ? first + stride : nullptr;
    if (rows >= kRows) {
      const auto low = hn::PromoteTo(d, hn::LoadU(d16, first));
      const auto high = second == nullptr ? hn::Zero(d) : hn::PromoteTo(d, hn::LoadU(d16, second));
      body(p, hn::Or(low, hn::ShiftLeft<16>(high)));
    } else {
      alignas(64) uint32_t pairs[kRows] = {};
      for (int64_t i = 0; i < rows; ++i)
        pairs[i] = first[i] | (second == nullptr ? 0 : uint32_t{second[i]} << 16);
      body(p, hn::Load(d, pairs));
    }
  }
}

// The halves of each lane as f32.
template <bool kF16>
HWY_INLINE VF widen_low(VU pairs) {
  if constexpr (kF16) {
    const hn::Rebind<uint16_t, DF> d16;
    const hn::Rebind<hwy::float16_t, DF> df16;
    return hn::PromoteTo(DF(), hn::BitCast(df16, hn::TruncateTo(d16, pairs)));
  } else {
    return hn::BitCast(DF(), hn::ShiftLeft<16>(pairs));
  }
}
template <bool kF16>
HWY_INLINE VF widen_high(VU pairs) {
  if constexpr (kF16) {
    return widen_low<true>(hn::ShiftRight<16>(pairs));
  } else {
    return hn::BitCast(DF(), hn::And(pairs, hn::Set(DU(), 0xffff0000u)));
  }
}

// pack_b_panel for B in f16 or bf16.
template <bool kF16, class Order = PlainOrder>
void pack_b_panel_16(const uint16_t* b, int64_t b_row, int64_t b_col, int64_t columns, int64_t k_count,
                     float* HWY_RESTRICT out, Order order = {}) {
  const DF d;
  const int64_t next = order.stride() * kNR;
  for (int64_t j = 0; j < kNR; j += kLanes) {
    const auto store = [&](int64_t p, VU pairs) HWY_ATTR {
      float* to = out + order.row(2 * p) * kNR + j;
      hn::StoreU(widen_low<kF16>(pairs), d, to);
      if (2 * p + 1 < k_count) hn::StoreU(widen_high<kF16>(pairs), d, to + next);
    };
    if (b_row == 1) {
      for_row_pairs(DU(), b + j * b_col, b_col, columns - j, k_count, store);
    } else {
      for_column_pairs(DU(), b + j, b_row, columns - j, k_count, store);
    }
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
