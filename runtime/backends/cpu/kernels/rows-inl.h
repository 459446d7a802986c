// Loops over a row of floats vector by vector, the last few elements included, per instruction set.
#if defined(TSR_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TSR_ROWS_INL_H_
#undef TSR_ROWS_INL_H_
#else
#define TSR_ROWS_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DR = hn::CappedTag<float, 16>;
using VR = hn::Vec<DR>;
inline constexpr int64_t kRowLanes = static_cast<int64_t>(hn::MaxLanes(DR()));

// The first n < lanes elements; the others are zero, and memory past n is not touched.
HWY_INLINE VR load_part(const float* p, int64_t n) {
  const DR d;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2  // smaller is newer; masked accesses do not fault
  return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, p);
#else
  alignas(64) float part[kRowLanes] = {};
  std::memcpy(part, p, sizeof(float) * static_cast<size_t>(n));
  return hn::Load(d, part);
#endif
}

HWY_INLINE void store_part(VR v, float* p, int64_t n) {
  const DR d;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(n)), d, p);
#else
  alignas(64) float part[kRowLanes];
  hn::Store(v, d, part);
  std::memcpy(p, part, sizeof(float) * static_cast<size_t>(n));
#endif
}

// Parts of a row: a whole vector, or its first `count` elements.
struct Whole {
  int64_t at;
  HWY_INLINE VR load(const float* row) const { return hn::LoadU(DR(), row + at); }
  HWY_INLINE void store(VR v, float* row) const { hn::StoreU(v, DR(), row + at); }
  HWY_INLINE VR keep(VR v) const { return v; }         // zero in absent elements
  HWY_INLINE VR keep_or(VR v, VR) const { return v; }  // `other` in absent elements
};
struct Part {
  int64_t at, count;
  HWY_INLINE VR load(const float* row) const { return load_part(row + at, count); }
  HWY_INLINE void store(VR v, float* row) const { store_part(v, row + at, count); }
  HWY_INLINE VR keep(VR v) const {
    return hn::IfThenElseZero(hn::FirstN(DR(), static_cast<size_t>(count)), v);
  }
  HWY_INLINE VR keep_or(VR v, VR other) const {
    return hn::IfThenElse(hn::FirstN(DR(), static_cast<size_t>(count)), v, other);
  }
};

// body(Whole) for every whole vector in [begin, end), body(Part) for the rest.
template <class Body>
HWY_INLINE void for_vectors(int64_t begin, int64_t end, const Body& body) {
  int64_t c = begin;
  for (; c + kRowLanes <= end; c += kRowLanes) body(Whole{c});
  if (c < end) body(Part{c, end - c});
}

HWY_INLINE float sum_of(VR v) { return hn::GetLane(hn::SumOfLanes(DR(), v)); }

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
