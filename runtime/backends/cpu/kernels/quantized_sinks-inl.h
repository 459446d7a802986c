// Sinks of the unpackers, per instruction set: one stores an unpacked block, the others multiply it with one
// quantised row while it is in registers. Layouts of unpacked blocks:
//   kUnsigned32:  codes u8 [8 units][lane][4], scale f32 [lane], minimum f32 [lane] where the type has one
//   kSigned32:    codes i16 [8 units][2][lane][2], scale f32 [lane]
//   kUnsigned256: codes u8 [64 units][lane][4]; integer scales of groups, twice each, i16 [16][lane][2];
//   scale f32
//                 [lane]; where the type has minima, integer minima of groups i16 [8][lane][2], their scale
//                 f32
//   kWide32, kWide256: as the unsigned ones without minima
//   kSigned256:   codes times integer scales i16 [64 units][2][lane][2], scale f32 [lane]
// Signed codes are split into elements 0 and 2, then 1 and 3 of a unit.
#if defined(TSR_QUANTIZED_SINKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TSR_QUANTIZED_SINKS_INL_H_
#undef TSR_QUANTIZED_SINKS_INL_H_
#else
#define TSR_QUANTIZED_SINKS_INL_H_
#endif

#include "runtime/backends/cpu/kernels/quantized_dot_32-inl.h"
#include "runtime/backends/cpu/kernels/quantized_unpack_32-inl.h"
#include "runtime/backends/cpu/kernels/quantized_unpack_iq-inl.h"
#include "runtime/backends/cpu/kernels/quantized_unpack_k-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// Vectors before the scale, and before the minimum, of an unpacked block.
template <DotForm kForm>
inline constexpr int64_t kScaleVector = kForm == DotForm::kUnsigned32 || kForm == DotForm::kWide32     ? 8
                                        : kForm == DotForm::kSigned32                                  ? 16
                                        : kForm == DotForm::kUnsigned256 || kForm == DotForm::kWide256 ? 80
                                                                                                       : 128;
template <DotForm kForm>
inline constexpr int64_t kMinVector = kForm == DotForm::kUnsigned32 ? 9 : 89;

template <DotForm kForm>
struct StoreSink {
  std::byte* out;

  HWY_INLINE void unsigned_group(int g, const Units& units) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) store_bytes(units.u[i], out + (4 * g + i) * kVectorBytes);
  }
  HWY_INLINE void signed_group(int g, const Units& units) {
    if constexpr (kForm == DotForm::kWide32) return unsigned_group(g, map_units(units, add_128));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      store_words(even_bytes(units.u[i]), 8 * g + 2 * i);
      store_words(odd_bytes(units.u[i]), 8 * g + 2 * i + 1);
    }
  }
  HWY_INLINE void scaled_group(int g, const Units& units, V16 scale) {
    if constexpr (kForm == DotForm::kWide256) {
      group_scale(g, scale);
      return unsigned_group(g, map_units(units, add_128));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      store_words(hn::Mul(even_bytes(units.u[i]), scale), 8 * g + 2 * i);
      store_words(hn::Mul(odd_bytes(units.u[i]), scale), 8 * g + 2 * i + 1);
    }
  }
  HWY_INLINE void group_scale(int g, V16 twice) { store_words(twice, 64 + g); }
  HWY_INLINE void group_min(int i, V16 pair) { store_words(pair, 81 + i); }
  HWY_INLINE void scale(VF scale) { store_floats(scale, out + kScaleVector<kForm> * kVectorBytes); }
  HWY_INLINE void min(VF min) { store_floats(min, out + kMinVector<kForm> * kVectorBytes); }

 private:
  HWY_INLINE void store_words(V16 words, int64_t vector) {
    store_bytes(hn::BitCast(D8(), words), out + vector * kVectorBytes);
  }
};

// The sums are those of quantized_dot_32-inl.h and quantized_dot_k-inl.h, for one row `x`.
template <bool kOffset, bool kMin>
struct DotUnsigned32 {
  const std::byte* x;
  V16 sums;
  V32 dots;
  VF total;

  static constexpr int64_t kActivationBytes = 48;

  HWY_INLINE void begin(const std::byte* block) {
    x = block;
    sums = load_start<PlainSums, kOffset>(x + 32);
    dots = hn::Zero(D32());
  }
  HWY_INLINE void unsigned_group(int g, const Units& units) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sums = PlainSums::add_bytes(sums, units.u[i], load_unit(x + 16 * g + 4 * i));
    if (!kOffset) {
      dots = hn::Add(dots, PlainSums::finish(sums));
      sums = hn::Zero(D16());
    }
  }
  HWY_INLINE void scale(VF scale) {
    const DF d;
    if (kOffset) dots = PlainSums::finish(sums);
    total = hn::MulAdd(hn::Mul(scale, hn::Set(d, load_float(x + 36))), hn::ConvertTo(d, dots), total);
  }
  HWY_INLINE void min(VF min) { total = hn::MulAdd(min, hn::Set(DF(), load_float(x + 40)), total); }
  HWY_INLINE void end() {}
};

// 16-bit codes with pairs of activations.
HWY_INLINE V32 add_signed_products(V32 dots, const Units& units, const std::byte* x) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    dots = PlainSums::add_words(dots, even_bytes(units.u[i]), hn::BitCast(D16(), load_unit(x + 8 * i)));
    dots = PlainSums::add_words(dots, odd_bytes(units.u[i]), hn::BitCast(D16(), load_unit(x + 8 * i + 4)));
  }
  return dots;
}

struct DotSigned32 {
  const std::byte* x;
  V32 dots;
  VF total;

  static constexpr int64_t kActivationBytes = 80;

  HWY_INLINE void begin(const std::byte* block) {
    x = block;
    dots = hn::Zero(D32());
  }
  HWY_INLINE void signed_group(int g, const Units& units) {
    dots = add_signed_products(dots, units, x + 32 * g);
  }
  HWY_INLINE void scale(VF scale) {
    const DF d;
    total = hn::MulAdd(hn::Mul(scale, hn::Set(d, load_float(x + 64))), hn::ConvertTo(d, dots), total);
  }
  HWY_INLINE void end() {}
};

struct DotWide32 {
  const std::byte* x;
  V32 dots;
  VF total;

  static constexpr int64_t kActivationBytes = 48;

  HWY_INLINE void begin(const std::byte* block) {
    x = block;
    dots = load_start<VnniSums, true>(x + 44);
  }
  HWY_INLINE void signed_group(int g, const Units& units) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      dots = VnniSums::add_bytes(dots, add_128(units.u[i]), load_unit(x + 16 * g + 4 * i));
  }
  HWY_INLINE void scale(VF scale) {
    const DF d;
    total = hn::MulAdd(hn::Mul(scale, hn::Set(d, load_float(x + 36))), hn::ConvertTo(d, dots), total);
  }
  HWY_INLINE void end() {}
};

struct DotWide256 {
  const std::byte* x;
  V32 dots;
  VF total;

  static constexpr int64_t kActivationBytes = 432;

  HWY_INLINE void begin(const std::byte* block) {
    x = block;
    dots = hn::Zero(D32());
  }
  HWY_INLINE void scaled_group(int g, const Units& units, V16 scale) {
    V32 sums = load_start<VnniSums, true>(x + 368 + 4 * g);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      sums = VnniSums::add_bytes(sums, add_128(units.u[i]), load_unit(x + 16 * g + 4 * i));
    dots = hn::Add(dots, VnniSums::scale(sums, scale));
  }
  HWY_INLINE void scale(VF scale) {
    const DF d;
    total = hn::MulAdd(hn::Mul(scale, hn::Set(d, load_float(x + 352))), hn::ConvertTo(d, dots), total);
  }
  HWY_INLINE void end() {}
};

template <bool kOffset, bool kMin>
struct DotUnsigned256 {
  const std::byte* x;
  V32 dots, mins;
  VF factor, min_factor, total;
  int16_t* scales;  // of the block's groups: [16][lane][2]

  static constexpr int64_t kActivationBytes = 432;

  HWY_INLINE void begin(const std::byte* block) {
    x = block;
    dots = mins = hn::Zero(D32());
  }
  HWY_INLINE void group_scale(int g, V16 twice) { hn::Store(twice, D16(), scales + g * 2 * kLanes); }
  HWY_INLINE void group_min(int i, V16 pair) {
    mins = PlainSums::add_words(mins, pair, hn::BitCast(D16(), load_unit(x + 320 + 4 * i)));
  }
  HWY_INLINE void unsigned_group(int g, const Units& units) {
    V16 sums = load_start<PlainSums, kOffset>(x + 256 + 4 * g);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sums = PlainSums::add_bytes(sums, units.u[i], load_unit(x + 16 * g + 4 * i));
    dots = add_in_order(dots, PlainSums::scale(sums, hn::Load(D16(), scales + g * 2 * kLanes)));
  }
  HWY_INLINE void scale(VF scale) { factor = hn::Mul(scale, hn::Set(DF(), load_float(x + 352))); }
  HWY_INLINE void min(VF scale) { min_factor = hn::Mul(scale, hn::Set(DF(), load_float(x + 352))); }
  HWY_INLINE void end() {
    const DF d;
    total = hn::MulAdd(factor, hn::ConvertTo(d, dots), total);
    if (kMin) total = hn::NegMulAdd(min_factor, hn::ConvertTo(d, mins), total);
  }
};

struct DotSigned256 {
  const std::byte* x;
  V32 dots;
  VF total;

  static constexpr int64_t kActivationBytes = 528;

  HWY_INLINE void begin(const std::byte* block) {
    x = block;
    dots = hn::Zero(D32());
  }
  HWY_INLINE void scaled_group(int g, const Units& units, V16 scale) {
    V32 sums = add_signed_products(hn::Zero(D32()), units, x + 32 * g);
    // Products with the scale of 16 bits, modulo 2^32: the lanes hold it twice.
    dots = hn::Add(dots, hn::Mul(sums, hn::ShiftRight<16>(hn::BitCast(D32(), scale))));
  }
  HWY_INLINE void scale(VF scale) {
    const DF d;
    total = hn::MulAdd(hn::Mul(scale, hn::Set(d, load_float(x + 512))), hn::ConvertTo(d, dots), total);
  }
  HWY_INLINE void end() {}
};

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
