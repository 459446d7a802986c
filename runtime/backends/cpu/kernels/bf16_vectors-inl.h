// Vectors of f32 from and to numbers of bf16 in memory, per instruction set. Rounding is to nearest, ties to even;
// a NaN stays one (bf16_from_f32).
#if defined(TSR_BF16_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TSR_BF16_VECTORS_INL_H_
#undef TSR_BF16_VECTORS_INL_H_
#else
#define TSR_BF16_VECTORS_INL_H_
#endif

#include <cstdint>

#include "graph/base/half.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> load_bf16(D d, const uint16_t* p) {
  const hn::Repartition<uint32_t, D> d32;
  const hn::Rebind<uint16_t, D> d16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, p))));
}

template <class D>
HWY_INLINE void store_bf16(hn::Vec<D> value, D, uint16_t* p) {
  const hn::Repartition<uint32_t, D> d32;
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = hn::BitCast(d32, value), upper = hn::ShiftRight<16>(bits);
  const auto half = hn::Add(hn::Set(d32, 0x7fffu), hn::And(upper, hn::Set(d32, 1u)));
  const auto nearest = hn::ShiftRight<16>(hn::Add(bits, half));
  const auto nan = hn::Or(upper, hn::Set(d32, 0x40u));
  const auto rounded = hn::IfThenElse(hn::RebindMask(d32, hn::Ne(value, value)), nan, nearest);
  hn::StoreU(hn::TruncateTo(d16, rounded), d16, p);
}

inline void widen_bf16_row(const uint16_t* in, float* out, int64_t count) {
  const hn::CappedTag<float, 16> d;
  constexpr int64_t kStep = static_cast<int64_t>(hn::MaxLanes(hn::CappedTag<float, 16>()));
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) hn::StoreU(load_bf16(d, in + i), d, out + i);
  for (; i < count; ++i) out[i] = f32_from_bf16(in[i]);
}

inline void round_row_to_bf16(const float* in, uint16_t* out, int64_t count) {
  const hn::CappedTag<float, 16> d;
  constexpr int64_t kStep = static_cast<int64_t>(hn::MaxLanes(hn::CappedTag<float, 16>()));
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) store_bf16(hn::LoadU(d, in + i), d, out + i);
  for (; i < count; ++i) out[i] = bf16_from_f32(in[i]);
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
