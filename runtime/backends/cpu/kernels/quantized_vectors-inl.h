// Vectors of the quantised products, per instruction set: one 32-bit lane for each row of a panel, products
// of bytes summed in pairs, rows interleaved in registers.
#if defined(TSR_QUANTIZED_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TSR_QUANTIZED_VECTORS_INL_H_
#undef TSR_QUANTIZED_VECTORS_INL_H_
#else
#define TSR_QUANTIZED_VECTORS_INL_H_
#endif

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include <cstring>

#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/gemm_micro-inl.h"
#include "runtime/backends/cpu/kernels/quantized_layout.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

using D8 = hn::Repartition<uint8_t, DF>;
using D16 = hn::Repartition<int16_t, DF>;
using D32 = hn::Repartition<int32_t, DF>;
using V8 = hn::Vec<D8>;
using V16 = hn::Vec<D16>;
using V32 = hn::Vec<D32>;

inline constexpr int64_t kVectorBytes = 4 * kLanes;
// Offsets of the parts of an unpacked kUnsigned256 block.
inline constexpr int64_t kScales256 = 64 * kVectorBytes, kScale256 = 80 * kVectorBytes;
inline constexpr int64_t kMins256 = 81 * kVectorBytes, kMinScale256 = 89 * kVectorBytes;

HWY_INLINE V8 load_bytes(const std::byte* p) { return hn::LoadU(D8(), reinterpret_cast<const uint8_t*>(p)); }
HWY_INLINE void store_bytes(V8 v, std::byte* p) { hn::StoreU(v, D8(), reinterpret_cast<uint8_t*>(p)); }
HWY_INLINE VF load_floats(const std::byte* p) { return hn::BitCast(DF(), load_bytes(p)); }
HWY_INLINE void store_floats(VF v, std::byte* p) { store_bytes(hn::BitCast(D8(), v), p); }

HWY_INLINE float load_float(const std::byte* p) {
  float value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
// Repeats the same four bytes in every lane.
HWY_INLINE V8 load_unit(const std::byte* p) {
  int32_t unit;
  std::memcpy(&unit, p, sizeof unit);
  return hn::BitCast(D8(), hn::Set(D32(), unit));
}

HWY_INLINE void prefetch_bytes(const std::byte* p, int64_t count) {
  for (int64_t i = 0; i < count; i += 64) __builtin_prefetch(p + i, 0, 3);
}

// f16 of each lane.
HWY_INLINE VF load_f16(const std::byte* p) {
  const hn::Rebind<hwy::float16_t, DF> d16;
  return hn::PromoteTo(DF(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
}

// Bytes shifted right by `kBits`, then masked: shifts of bytes alone do not exist.
template <int kBits>
HWY_INLINE V8 shift_bytes_right(V8 v) {
  if constexpr (kBits == 0) {
    return v;
  } else {
    const hn::Repartition<uint16_t, D8> d;
    return hn::BitCast(D8(), hn::ShiftRight<kBits>(hn::BitCast(d, v)));
  }
}
template <int kBits>
HWY_INLINE V8 shift_bytes_left(V8 v) {
  if constexpr (kBits == 0) {
    return v;
  } else {
    const hn::Repartition<uint16_t, D8> d;
    return hn::BitCast(D8(), hn::ShiftLeft<kBits>(hn::BitCast(d, v)));
  }
}
HWY_INLINE V8 mask_bytes(V8 v, uint8_t mask) { return hn::And(v, hn::Set(D8(), mask)); }

// Even and odd bytes of each pair, sign-extended.
HWY_INLINE V16 even_bytes(V8 v) { return hn::ShiftRight<8>(hn::ShiftLeft<8>(hn::BitCast(D16(), v))); }
HWY_INLINE V16 odd_bytes(V8 v) { return hn::ShiftRight<8>(hn::BitCast(D16(), v)); }

// w[2i] * x[2i] + w[2i + 1] * x[2i + 1], w unsigned and at most 127, x signed.
HWY_INLINE V16 multiply_byte_pairs(V8 w, V8 x) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  return V16{_mm512_maddubs_epi16(w.raw, x.raw)};
#elif HWY_TARGET == HWY_AVX2
  return V16{_mm256_maddubs_epi16(w.raw, x.raw)};
#elif HWY_TARGET == HWY_SSE4
  return V16{_mm_maddubs_epi16(w.raw, x.raw)};
#elif HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64
  const int8x16_t a = vreinterpretq_s8_u8(w.raw), b = vreinterpretq_s8_u8(x.raw);
  return V16(
      vpaddq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_s8(vget_high_s8(a), vget_high_s8(b))));
#else
  return hn::Add(hn::Mul(even_bytes(w), even_bytes(x)), hn::Mul(odd_bytes(w), odd_bytes(x)));
#endif
}

// a[2i] * b[2i] + a[2i + 1] * b[2i + 1].
HWY_INLINE V32 multiply_pairs(V16 a, V16 b) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  return V32{_mm512_madd_epi16(a.raw, b.raw)};
#elif HWY_TARGET == HWY_AVX2
  return V32{_mm256_madd_epi16(a.raw, b.raw)};
#elif HWY_TARGET == HWY_SSE4
  return V32{_mm_madd_epi16(a.raw, b.raw)};
#elif HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64
  return V32(vpaddq_s32(vmull_s16(vget_low_s16(a.raw), vget_low_s16(b.raw)),
                        vmull_s16(vget_high_s16(a.raw), vget_high_s16(b.raw))));
#else
  const V32 a32 = hn::BitCast(D32(), a), b32 = hn::BitCast(D32(), b);
  const V32 even =
      hn::Mul(hn::ShiftRight<16>(hn::ShiftLeft<16>(a32)), hn::ShiftRight<16>(hn::ShiftLeft<16>(b32)));
  return hn::Add(even, hn::Mul(hn::ShiftRight<16>(a32), hn::ShiftRight<16>(b32)));
#endif
}

// sum + term, in the order written: GCC else makes trees of the sums of a loop, computes all terms first and
// keeps them in memory.
template <class V>
HWY_INLINE V add_in_order(V sum, V term) {
  V result = hn::Add(sum, term);
#if HWY_ARCH_X86
  asm("" : "+v"(result.raw));
#endif
  return result;
}

// ---- sums of products
//
// Without VNNI: products of bytes are summed in 16 bits, two sums in a lane; what adds those to 32 bits
// multiplies with an integer scale too. `twice`: a scale of 16 bits, twice in a lane.
struct PlainSums {
  using Bytes = V16;
  static constexpr int64_t kStart = 0;  // which start of activations: see quantized_activations-inl.h
  static HWY_INLINE V16 add_bytes(V16 sums, V8 w, V8 x) {
    return add_in_order(sums, multiply_byte_pairs(w, x));
  }
  static HWY_INLINE V32 finish(V16 sums) { return multiply_pairs(sums, hn::Set(D16(), 1)); }
  static HWY_INLINE V32 scale(V16 sums, V16 twice) { return multiply_pairs(sums, twice); }
  static HWY_INLINE V32 add_words(V32 sums, V16 a, V16 b) { return add_in_order(sums, multiply_pairs(a, b)); }
};

// VNNI (AVX-512 VNNI or AVX-VNNI): adds four products of bytes, or two of words, to a 32-bit sum.
// ARM's dot products (SDOT, an extension from ARMv8.2 on) do so for bytes alone. The instructions are written out
// because no target of Highway 1.0.3 stands for them: on ARM it has NEON, and SVE, which simd_targets.h leaves
// out.
#undef TSR_QUANTIZED_VNNI
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || (HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64)
#define TSR_QUANTIZED_VNNI 1
#else
#define TSR_QUANTIZED_VNNI 0
#endif
#ifndef TSR_EMULATE_VNNI  // 1 tries the code on any x86 machine
#define TSR_EMULATE_VNNI 0
#endif
struct VnniSums {
  using Bytes = V32;
  static constexpr int64_t kStart = 1;
  static HWY_INLINE V32 add_bytes(V32 sums, V8 w, V8 x) {
#if TSR_QUANTIZED_VNNI && !TSR_EMULATE_VNNI
#if HWY_ARCH_ARM
    // sdot %0.4s, %1.16b, %2.16b as a number: the assembler takes its name only after .arch, which would hold for
    // all that follows.
    asm inline(
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
        ".equ .Lnumber_of_v\\n, \\n\n.endr\n"
        ".inst 0x4e809400 | .Lnumber_of_%2 << 16 | .Lnumber_of_%1 << 5 | .Lnumber_of_%0"
        : "+w"(sums.raw)
        : "w"(w.raw), "w"(x.raw));
#elif HWY_TARGET == HWY_AVX2
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums.raw) : "x"(w.raw), "x"(x.raw));
#else
    asm("vpdpbusd %2, %1, %0" : "+v"(sums.raw) : "v"(w.raw), "v"(x.raw));
#endif
    return sums;
#else
    const D16 d;
    const hn::RebindToUnsigned<D16> du;
    const V16 even = hn::And(hn::BitCast(d, w), hn::Set(d, 0xff));
    const V16 odd = hn::BitCast(d, hn::ShiftRight<8>(hn::BitCast(du, w)));
    return hn::Add(sums, hn::Add(PlainSums::finish(hn::Mul(even, even_bytes(x))),
                                 PlainSums::finish(hn::Mul(odd, odd_bytes(x)))));
#endif
  }
  static HWY_INLINE V32 finish(V32 sums) { return sums; }
  static HWY_INLINE V32 scale(V32 sums, V16 twice) {
    return hn::Mul(sums, hn::ShiftRight<16>(hn::BitCast(D32(), twice)));
  }
  static HWY_INLINE V32 add_words(V32 sums, V16 a, V16 b) {
#if TSR_QUANTIZED_VNNI && !TSR_EMULATE_VNNI && HWY_ARCH_X86
#if HWY_TARGET == HWY_AVX2
    asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sums.raw) : "x"(a.raw), "x"(b.raw));
#else
    asm("vpdpwssd %2, %1, %0" : "+v"(sums.raw) : "v"(a.raw), "v"(b.raw));
#endif
    return sums;
#else
    return hn::Add(sums, multiply_pairs(a, b));
#endif
  }
};

// Whether this CPU has what VnniSums takes in this target.
HWY_INLINE bool has_vnni() {
#if TSR_EMULATE_VNNI || defined(__ARM_FEATURE_DOTPROD)
  return true;
#elif TSR_QUANTIZED_VNNI && HWY_ARCH_ARM && defined(HWCAP_ASIMDDP)
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#elif TSR_QUANTIZED_VNNI && HWY_ARCH_ARM
  return false;
#elif TSR_QUANTIZED_VNNI && HWY_TARGET == HWY_AVX2
  return __builtin_cpu_supports("avxvnni");
#elif TSR_QUANTIZED_VNNI
  return __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

// Whether forms 128 above their values are for this CPU: its instruction takes bytes up to 255.
HWY_INLINE bool has_wide_forms() {
#if HWY_ARCH_ARM
  return false;
#else
  return has_vnni();
#endif
}
// Signed codes as the wide forms have them.
HWY_INLINE V8 add_128(V8 codes) { return hn::Xor(codes, hn::Set(D8(), 128)); }

// ---- rows to panels

// 16 bytes of rows 0, 4, 8, ...: one row in each block of 16 bytes.
template <class D>
HWY_INLINE hn::Vec<D> load_every_fourth(D d, const std::byte* rows, int64_t stride) {
  if constexpr (hn::MaxLanes(D()) == 16) {
    return hn::LoadU(d, reinterpret_cast<const uint8_t*>(rows));
  } else {
    const hn::Half<D> half;
    constexpr int64_t kRows = static_cast<int64_t>(hn::MaxLanes(D())) / 8;
    return hn::Combine(d, load_every_fourth(half, rows + kRows * stride, stride),
                       load_every_fourth(half, rows, stride));
  }
}

// Four units, of one group or of several that share bytes.
struct Units {
  V8 u[4];
};

// 16 bytes of each row, rows `stride` bytes apart, as four vectors with a lane for each row.
HWY_INLINE Units interleave_units_of_16(const std::byte* rows, int64_t stride) {
  const hn::Repartition<double, D8> d64;
  const D8 d;
  const VF r0 = hn::BitCast(DF(), load_every_fourth(d, rows, stride)),
           r1 = hn::BitCast(DF(), load_every_fourth(d, rows + 1 * stride, stride));
  const VF r2 = hn::BitCast(DF(), load_every_fourth(d, rows + 2 * stride, stride)),
           r3 = hn::BitCast(DF(), load_every_fourth(d, rows + 3 * stride, stride));
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(DF(), r0, r1));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(DF(), r0, r1));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(DF(), r2, r3));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(DF(), r2, r3));
  return {{hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)),
           hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)),
           hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)),
           hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23))}};
}
HWY_INLINE void interleave_16_bytes(const std::byte* rows, int64_t stride, std::byte* out) {
  const Units units = interleave_units_of_16(rows, stride);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) store_bytes(units.u[i], out + i * kVectorBytes);
}

template <int kBytes>
HWY_INLINE void interleave_units(const std::byte* rows, int64_t stride, std::byte* out) {
#pragma GCC unroll 16
  for (int64_t r = 0; r < kLanes; ++r) std::memcpy(out + r * kBytes, rows + r * stride, kBytes);
}

#if HWY_ARCH_X86
// In a register: a wide load would stall on the narrow stores before it.
template <>
HWY_INLINE void interleave_units<2>(const std::byte* rows, int64_t stride, std::byte* out) {
  const auto load = [&](int64_t row) {
    uint16_t unit;
    std::memcpy(&unit, rows + row * stride, sizeof unit);
    return static_cast<int>(unit);
  };
#pragma GCC unroll 2
  for (int64_t r = 0; r < kLanes; r += 8) {
    __m128i units = _mm_cvtsi32_si128(load(r));
    units = _mm_insert_epi16(units, load(r + 1), 1);
    units = _mm_insert_epi16(units, load(r + 2), 2);
    units = _mm_insert_epi16(units, load(r + 3), 3);
    if constexpr (kLanes == 4) {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out), units);
    } else {
      units = _mm_insert_epi16(units, load(r + 4), 4);
      units = _mm_insert_epi16(units, load(r + 5), 5);
      units = _mm_insert_epi16(units, load(r + 6), 6);
      units = _mm_insert_epi16(units, load(r + 7), 7);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * r), units);
    }
  }
}
#endif

// One field of a block of each row; returns the end of what it wrote.
template <int kBytes, int kUnits>
HWY_INLINE std::byte* interleave_field(const std::byte* rows, int64_t stride, std::byte* out) {
  if constexpr (kBytes == 4 && kUnits % 4 == 0) {
#pragma GCC unroll 1
    for (int i = 0; i < kUnits / 4; ++i)
      interleave_16_bytes(rows + 16 * i, stride, out + 4 * i * kVectorBytes);
  } else {
#pragma GCC unroll 4
    for (int i = 0; i < kUnits; ++i)
      interleave_units<kBytes>(rows + kBytes * i, stride, out + i * kBytes * kLanes);
  }
  return out + kBytes * kUnits * kLanes;
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
