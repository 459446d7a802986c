// Unpackers of block types of 256 elements, per instruction set. `panel` is one interleaved block of kLanes
// rows, `out` receives
//   kUnsigned256: codes u8 [64 units][lane][4]; integer scales of 16 elements, twice each, i16 [16][lane][2];
//                 scale f32 [lane]; where the type has minima, integer minima of 16 elements
//                 i16 [8][lane][2] and their scale f32 [lane]
//   kSigned256:   codes times integer scales i16 [64 units][2][lane][2], scale f32 [lane]
#if defined(TSR_QUANTIZED_UNPACK_K_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TSR_QUANTIZED_UNPACK_K_INL_H_
#undef TSR_QUANTIZED_UNPACK_K_INL_H_
#else
#define TSR_QUANTIZED_UNPACK_K_INL_H_
#endif

#include "graph/base/blocks/block_layout.h"
#include "runtime/backends/cpu/kernels/quantized_unpack_32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// Bytes `first` and `second` of each lane as two 16-bit numbers, in their low or high byte.
template <int first, int second, bool kHigh>
HWY_INLINE V16 pick_bytes(V8 v) {
  constexpr uint8_t kNone = 0x80;
  constexpr uint8_t a = first, b = second;
  alignas(16) static constexpr uint8_t kLow[16] = {a,     kNone, b,     kNone, a + 4,  kNone, b + 4,  kNone,
                                                   a + 8, kNone, b + 8, kNone, a + 12, kNone, b + 12, kNone};
  alignas(16) static constexpr uint8_t kUpper[16] = {kNone, a,      kNone, b,     kNone, a + 4,
                                                     kNone, b + 4,  kNone, a + 8, kNone, b + 8,
                                                     kNone, a + 12, kNone, b + 12};
  return hn::BitCast(D16(), hn::TableLookupBytesOr0(v, load_table(kHigh ? kUpper : kLow)));
}
HWY_INLINE void store_words(V16 v, std::byte* out) { store_bytes(hn::BitCast(D8(), v), out); }

// Four scales, bytes of a lane, each for kGroups groups of 16.
template <int kGroups, bool kSigned>
HWY_INLINE void store_scales(V8 scales, std::byte* out) {
  const auto store = [&](int i, V16 twice) HWY_ATTR {
    if (kSigned) twice = hn::ShiftRight<8>(twice);
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) store_words(twice, out + (i * kGroups + g) * kVectorBytes);
  };
  store(0, pick_bytes<0, 0, kSigned>(scales));
  store(1, pick_bytes<1, 1, kSigned>(scales));
  store(2, pick_bytes<2, 2, kSigned>(scales));
  store(3, pick_bytes<3, 3, kSigned>(scales));
}

// Elements [128 half, 128 half + 128) of Q2_K and Q3_K: bits 2 s of a byte belong to part s of 32.
template <class Emit>
HWY_INLINE void for_each_crumb(V8 codes, const Emit& emit) {
  emit(0, mask_bytes(codes, 3));
  emit(1, mask_bytes(shift_bytes_right<2>(codes), 3));
  emit(2, mask_bytes(shift_bytes_right<4>(codes), 3));
  emit(3, mask_bytes(shift_bytes_right<6>(codes), 3));
}

struct UnpackQ2K {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ2_K);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<4, 20>(rows, stride, out);
    interleave_field<2, 2>(rows + 80, stride, out);
  }
  static HWY_INLINE void unpack(const std::byte* panel, std::byte* out) {
    const std::byte* codes = panel + 4 * kVectorBytes;
    for (int half = 0; half < 2; ++half)
#pragma GCC unroll 8
      for (int u = 0; u < 8; ++u)
        for_each_crumb(load_bytes(codes + (8 * half + u) * kVectorBytes), [&](int s, V8 crumb) HWY_ATTR {
          store_bytes(crumb, out + ((4 * half + s) * 8 + u) * kVectorBytes);
        });
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const V8 bytes = load_bytes(panel + i * kVectorBytes);
      const V8 mins = mask_bytes(shift_bytes_right<4>(bytes), 15);
      store_scales<1, false>(mask_bytes(bytes, 15), out + kScales256 + 4 * i * kVectorBytes);
      store_words(pick_bytes<0, 1, false>(mins), out + kMins256 + 2 * i * kVectorBytes);
      store_words(pick_bytes<2, 3, false>(mins), out + kMins256 + (2 * i + 1) * kVectorBytes);
    }
    store_floats(load_f16(panel + 80 * kLanes), out + kScale256);
    store_floats(load_f16(panel + 82 * kLanes), out + kMinScale256);
  }
};

struct UnpackQ3K {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ3_K);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<4, 24>(rows, stride, out);
    out = interleave_field<4, 3>(rows + 96, stride, out);
    interleave_field<2, 1>(rows + 108, stride, out);
  }
  static HWY_INLINE void unpack(const std::byte* panel, std::byte* out) {
    const std::byte* codes = panel + 8 * kVectorBytes;
#pragma GCC unroll 8
    for (int u = 0; u < 8; ++u) {
      const V8 high = load_bytes(panel + u * kVectorBytes);
      const V8 third[8] = {mask_bytes(shift_bytes_left<2>(high), 4),
                           mask_bytes(shift_bytes_left<1>(high), 4),
                           mask_bytes(high, 4),
                           mask_bytes(shift_bytes_right<1>(high), 4),
                           mask_bytes(shift_bytes_right<2>(high), 4),
                           mask_bytes(shift_bytes_right<3>(high), 4),
                           mask_bytes(shift_bytes_right<4>(high), 4),
                           mask_bytes(shift_bytes_right<5>(high), 4)};
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half)
        for_each_crumb(load_bytes(codes + (8 * half + u) * kVectorBytes), [&](int s, V8 crumb) HWY_ATTR {
          store_bytes(hn::Or(crumb, third[4 * half + s]), out + ((4 * half + s) * 8 + u) * kVectorBytes);
        });
    }
    const V8 s0 = load_bytes(panel + 96 * kLanes), s1 = load_bytes(panel + 100 * kLanes);
    const V8 s2 = load_bytes(panel + 104 * kLanes);
    const V8 offset = hn::Set(D8(), 32);
    const auto store = [&](V8 low, V8 high, int i) HWY_ATTR {
      const V8 scales = hn::Sub(hn::Or(mask_bytes(low, 15), mask_bytes(high, 48)), offset);
      store_scales<1, true>(scales, out + kScales256 + 4 * i * kVectorBytes);
    };
    store(s0, shift_bytes_left<4>(s2), 0);
    store(s1, shift_bytes_left<2>(s2), 1);
    store(shift_bytes_right<4>(s0), s2, 2);
    store(shift_bytes_right<4>(s1), shift_bytes_right<2>(s2), 3);
    store_floats(load_f16(panel + 108 * kLanes), out + kScale256);
  }
};

// Scales and minima of Q4_K and Q5_K: six bits each, in three units; both scales of the block before them.
HWY_INLINE void unpack_scales6(const std::byte* panel, std::byte* out) {
  const V8 s0 = load_bytes(panel + 4 * kLanes), s1 = load_bytes(panel + 8 * kLanes);
  const V8 s2 = load_bytes(panel + 12 * kLanes);
  const V8 scales[2] = {mask_bytes(s0, 63),
                        hn::Or(mask_bytes(s2, 15), mask_bytes(shift_bytes_right<2>(s0), 48))};
  const V8 mins[2] = {mask_bytes(s1, 63), hn::Or(mask_bytes(shift_bytes_right<4>(s2), 15),
                                                 mask_bytes(shift_bytes_right<2>(s1), 48))};
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    store_scales<2, false>(scales[i], out + kScales256 + 8 * i * kVectorBytes);
    std::byte* to = out + kMins256 + 4 * i * kVectorBytes;
    store_words(pick_bytes<0, 0, false>(mins[i]), to);
    store_words(pick_bytes<1, 1, false>(mins[i]), to + kVectorBytes);
    store_words(pick_bytes<2, 2, false>(mins[i]), to + 2 * kVectorBytes);
    store_words(pick_bytes<3, 3, false>(mins[i]), to + 3 * kVectorBytes);
  }
  store_floats(load_f16(panel), out + kScale256);
  store_floats(load_f16(panel + 2 * kLanes), out + kMinScale256);
}

struct UnpackQ4K {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ4_K);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<2, 2>(rows, stride, out);
    out = interleave_field<4, 3>(rows + 4, stride, out);
    interleave_field<4, 32>(rows + 16, stride, out);
  }
  static HWY_INLINE void unpack(const std::byte* panel, std::byte* out) {
    for (int part = 0; part < 4; ++part)
#pragma GCC unroll 8
      for (int u = 0; u < 8; ++u) {
        const V8 codes = load_bytes(panel + 16 * kLanes + (8 * part + u) * kVectorBytes);
        store_bytes(mask_bytes(codes, 15), out + (16 * part + u) * kVectorBytes);
        store_bytes(mask_bytes(shift_bytes_right<4>(codes), 15), out + (16 * part + 8 + u) * kVectorBytes);
      }
    unpack_scales6(panel, out);
  }
};

struct UnpackQ5K {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ5_K);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<2, 2>(rows, stride, out);
    out = interleave_field<4, 3>(rows + 4, stride, out);
    interleave_field<4, 40>(rows + 16, stride, out);
  }
  // The low nibbles of part `part` take bit 2 part of `high`, the others the next.
  template <int part>
  static HWY_INLINE void unpack_part(const std::byte* panel, std::byte* out) {
    constexpr int kLeft = part < 2 ? 4 - 2 * part : 0, kRight = part < 2 ? 0 : 2 * part - 4;
    constexpr int kLeftNext = part < 2 ? 3 - 2 * part : 0, kRightNext = part < 2 ? 0 : 2 * part - 3;
#pragma GCC unroll 8
    for (int u = 0; u < 8; ++u) {
      const V8 high = load_bytes(panel + 16 * kLanes + u * kVectorBytes);
      const V8 codes = load_bytes(panel + 16 * kLanes + (8 + 8 * part + u) * kVectorBytes);
      const V8 even = shift_bytes_right<kRight>(shift_bytes_left<kLeft>(high));
      const V8 odd = shift_bytes_right<kRightNext>(shift_bytes_left<kLeftNext>(high));
      store_bytes(hn::Or(mask_bytes(codes, 15), mask_bytes(even, 16)), out + (16 * part + u) * kVectorBytes);
      store_bytes(hn::Or(mask_bytes(shift_bytes_right<4>(codes), 15), mask_bytes(odd, 16)),
                  out + (16 * part + 8 + u) * kVectorBytes);
    }
  }
  static HWY_INLINE void unpack(const std::byte* panel, std::byte* out) {
    unpack_part<0>(panel, out);
    unpack_part<1>(panel, out);
    unpack_part<2>(panel, out);
    unpack_part<3>(panel, out);
    unpack_scales6(panel, out);
  }
};

struct UnpackQ6K {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ6_K);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<4, 52>(rows, stride, out);
    interleave_field<2, 1>(rows + 208, stride, out);
  }
  static HWY_INLINE void unpack(const std::byte* panel, std::byte* out) {
    for (int half = 0; half < 2; ++half)
#pragma GCC unroll 8
      for (int u = 0; u < 8; ++u) {
        const V8 low0 = load_bytes(panel + (16 * half + u) * kVectorBytes);
        const V8 low1 = load_bytes(panel + (16 * half + 8 + u) * kVectorBytes);
        const V8 high = load_bytes(panel + (32 + 8 * half + u) * kVectorBytes);
        std::byte* to = out + (32 * half + u) * kVectorBytes;
        store_bytes(hn::Or(mask_bytes(low0, 15), mask_bytes(shift_bytes_left<4>(high), 48)), to);
        store_bytes(hn::Or(mask_bytes(low1, 15), mask_bytes(shift_bytes_left<2>(high), 48)),
                    to + 8 * kVectorBytes);
        store_bytes(hn::Or(mask_bytes(shift_bytes_right<4>(low0), 15), mask_bytes(high, 48)),
                    to + 16 * kVectorBytes);
        store_bytes(
            hn::Or(mask_bytes(shift_bytes_right<4>(low1), 15), mask_bytes(shift_bytes_right<2>(high), 48)),
            to + 24 * kVectorBytes);
      }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      store_scales<1, true>(load_bytes(panel + (48 + i) * kVectorBytes),
                            out + kScales256 + 4 * i * kVectorBytes);
    store_floats(load_f16(panel + 208 * kLanes), out + kScale256);
  }
};

struct UnpackIq4Xs {
  static constexpr int64_t kBlockBytes = sizeof(BlockIq4Xs);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<2, 2>(rows, stride, out);
    out = interleave_field<4, 1>(rows + 4, stride, out);
    interleave_field<4, 32>(rows + 8, stride, out);
  }
  static HWY_INLINE void unpack(const std::byte* panel, std::byte* out) {
    const D32 d;
    const hn::Rebind<uint16_t, D32> du16;
    const V8 table = load_table(kIq4NlValues);
    V32 high = hn::PromoteTo(d, hn::LoadU(du16, reinterpret_cast<const uint16_t*>(panel + 2 * kLanes)));
    V32 low = hn::BitCast(d, load_bytes(panel + 4 * kLanes));
    for (int g = 0; g < 8; ++g) {
      const V32 scale =
          hn::Sub(hn::Or(hn::And(low, hn::Set(d, 15)), hn::ShiftLeft<4>(hn::And(high, hn::Set(d, 3)))),
                  hn::Set(d, 32));
      const V16 twice =
          hn::BitCast(D16(), hn::Or(hn::And(scale, hn::Set(d, 0xffff)), hn::ShiftLeft<16>(scale)));
      const auto store = [&](V8 codes, int unit) HWY_ATTR {
        const V8 values = hn::TableLookupBytes(table, mask_bytes(codes, 15));
        std::byte* to = out + (8 * g + unit) * 2 * kVectorBytes;
        store_words(hn::Mul(even_bytes(values), twice), to);
        store_words(hn::Mul(odd_bytes(values), twice), to + kVectorBytes);
      };
#pragma GCC unroll 4
      for (int u = 0; u < 4; ++u) {
        const V8 codes = load_bytes(panel + 8 * kLanes + (4 * g + u) * kVectorBytes);
        store(codes, u);
        store(shift_bytes_right<4>(codes), 4 + u);
      }
      low = hn::ShiftRight<4>(low);
      high = hn::ShiftRight<2>(high);
    }
    store_floats(load_f16(panel), out + 128 * kVectorBytes);
  }
};

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
