// Unpackers of block types of 32 elements, per instruction set. `panel` is one interleaved block of kLanes
// rows, `out` receives
//   kUnsigned32: codes u8 [8 units][lane][4], scale f32 [lane], minimum f32 [lane] where the type has one
//   kSigned32:   codes i16 [8 units][2][lane][2], scale f32 [lane]
// A unit is four elements. Signed codes are split into elements 0 and 2, then 1 and 3 of a unit.
#if defined(TSR_QUANTIZED_UNPACK_32_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TSR_QUANTIZED_UNPACK_32_INL_H_
#undef TSR_QUANTIZED_UNPACK_32_INL_H_
#else
#define TSR_QUANTIZED_UNPACK_32_INL_H_
#endif

#include "graph/base/blocks/block_layout.h"
#include "runtime/backends/cpu/kernels/quantized_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// A table of 16 values, looked up by codes below 16.
HWY_INLINE V8 load_table(const void* values) {
  return hn::LoadDup128(D8(), static_cast<const uint8_t*>(values));
}

HWY_INLINE void store_signed_unit(V8 codes, std::byte* out) {
  store_bytes(hn::BitCast(D8(), even_bytes(codes)), out);
  store_bytes(hn::BitCast(D8(), odd_bytes(codes)), out + kVectorBytes);
}

struct UnpackQ4_0 {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ4_0);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<2, 1>(rows, stride, out);
    interleave_field<4, 4>(rows + 2, stride, out);
  }
  static HWY_INLINE void unpack(const std::byte* panel, std::byte* out) {
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) {
      const V8 codes = load_bytes(panel + 2 * kLanes + u * kVectorBytes);
      store_bytes(mask_bytes(codes, 15), out + u * kVectorBytes);
      store_bytes(mask_bytes(shift_bytes_right<4>(codes), 15), out + (4 + u) * kVectorBytes);
    }
    store_floats(load_f16(panel), out + 8 * kVectorBytes);
  }
};

struct UnpackQ4_1 {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ4_1);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<2, 2>(rows, stride, out);
    interleave_field<4, 4>(rows + 4, stride, out);
  }
  static HWY_INLINE void unpack(const std::byte* panel, std::byte* out) {
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) {
      const V8 codes = load_bytes(panel + 4 * kLanes + u * kVectorBytes);
      store_bytes(mask_bytes(codes, 15), out + u * kVectorBytes);
      store_bytes(mask_bytes(shift_bytes_right<4>(codes), 15), out + (4 + u) * kVectorBytes);
    }
    store_floats(load_f16(panel), out + 8 * kVectorBytes);
    store_floats(load_f16(panel + 2 * kLanes), out + 9 * kVectorBytes);
  }
};

// Codes of five bits: nibbles, and the fifth bits of each row in one lane, element j at bit j.
HWY_INLINE void unpack_codes5(const std::byte* high_bits, const std::byte* nibbles, std::byte* out) {
  // Bits 4 u % 8 and following of the byte that has them, one in each byte of a unit.
  alignas(16) static constexpr uint8_t kBytes[4][16] = {
      {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12},
      {1, 1, 1, 1, 5, 5, 5, 5, 9, 9, 9, 9, 13, 13, 13, 13},
      {2, 2, 2, 2, 6, 6, 6, 6, 10, 10, 10, 10, 14, 14, 14, 14},
      {3, 3, 3, 3, 7, 7, 7, 7, 11, 11, 11, 11, 15, 15, 15, 15}};
  const D8 d;
  const V8 high = load_bytes(high_bits);
  const V8 even_mask = hn::BitCast(d, hn::Set(D32(), 0x08040201)), odd_mask = shift_bytes_left<4>(even_mask);
  const auto fifth = [&](V8 spread, V8 mask) HWY_ATTR {
    return mask_bytes(hn::VecFromMask(d, hn::Eq(hn::And(spread, mask), mask)), 16);
  };
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const V8 low_spread = hn::TableLookupBytes(high, load_table(kBytes[i]));
    const V8 high_spread = hn::TableLookupBytes(high, load_table(kBytes[2 + i]));
    const V8 even = load_bytes(nibbles + 2 * i * kVectorBytes),
             odd = load_bytes(nibbles + (2 * i + 1) * kVectorBytes);
    store_bytes(hn::Or(mask_bytes(even, 15), fifth(low_spread, even_mask)), out + 2 * i * kVectorBytes);
    store_bytes(hn::Or(mask_bytes(odd, 15), fifth(low_spread, odd_mask)), out + (2 * i + 1) * kVectorBytes);
    store_bytes(hn::Or(mask_bytes(shift_bytes_right<4>(even), 15), fifth(high_spread, even_mask)),
                out + (4 + 2 * i) * kVectorBytes);
    store_bytes(hn::Or(mask_bytes(shift_bytes_right<4>(odd), 15), fifth(high_spread, odd_mask)),
                out + (5 + 2 * i) * kVectorBytes);
  }
}

struct UnpackQ5_0 {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ5_0);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<2, 1>(rows, stride, out);
    out = interleave_field<4, 1>(rows + 2, stride, out);
    interleave_field<4, 4>(rows + 6, stride, out);
  }
  static HWY_INLINE void unpack(const std::byte* panel, std::byte* out) {
    unpack_codes5(panel + 2 * kLanes, panel + 6 * kLanes, out);
    store_floats(load_f16(panel), out + 8 * kVectorBytes);
  }
};

struct UnpackQ5_1 {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ5_1);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<2, 2>(rows, stride, out);
    out = interleave_field<4, 1>(rows + 4, stride, out);
    interleave_field<4, 4>(rows + 8, stride, out);
  }
  static HWY_INLINE void unpack(const std::byte* panel, std::byte* out) {
    unpack_codes5(panel + 4 * kLanes, panel + 8 * kLanes, out);
    store_floats(load_f16(panel), out + 8 * kVectorBytes);
    store_floats(load_f16(panel + 2 * kLanes), out + 9 * kVectorBytes);
  }
};

struct UnpackQ8_0 {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ8_0);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<2, 1>(rows, stride, out);
    interleave_field<4, 8>(rows + 2, stride, out);
  }
  static HWY_INLINE void unpack(const std::byte* panel, std::byte* out) {
#pragma GCC unroll 8
    for (int u = 0; u < 8; ++u)
      store_signed_unit(load_bytes(panel + 2 * kLanes + u * kVectorBytes), out + 2 * u * kVectorBytes);
    store_floats(load_f16(panel), out + 16 * kVectorBytes);
  }
};

struct UnpackIq4Nl {
  static constexpr int64_t kBlockBytes = sizeof(BlockIq4Nl);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    UnpackQ4_0::interleave(rows, stride, out);
  }
  static HWY_INLINE void unpack(const std::byte* panel, std::byte* out) {
    const V8 table = load_table(kIq4NlValues);
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) {
      const V8 codes = load_bytes(panel + 2 * kLanes + u * kVectorBytes);
      store_signed_unit(hn::TableLookupBytes(table, mask_bytes(codes, 15)), out + 2 * u * kVectorBytes);
      store_signed_unit(hn::TableLookupBytes(table, mask_bytes(shift_bytes_right<4>(codes), 15)),
                        out + 2 * (4 + u) * kVectorBytes);
    }
    store_floats(load_f16(panel), out + 16 * kVectorBytes);
  }
};

struct UnpackMxfp4 {
  static constexpr int64_t kBlockBytes = sizeof(BlockMxfp4);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<1, 1>(rows, stride, out);
    interleave_field<4, 4>(rows + 1, stride, out);
  }
  static HWY_INLINE void unpack(const std::byte* panel, std::byte* out) {
    alignas(16) static constexpr uint8_t kAbove12[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                         12, 11, 10, 9,  8,  6,  4,  0};
    const V8 table = load_table(kAbove12);
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) {
      const V8 codes = load_bytes(panel + kLanes + u * kVectorBytes);
      store_bytes(hn::TableLookupBytes(table, mask_bytes(codes, 15)), out + u * kVectorBytes);
      store_bytes(hn::TableLookupBytes(table, mask_bytes(shift_bytes_right<4>(codes), 15)),
                  out + (4 + u) * kVectorBytes);
    }
    const D32 d;
    const hn::Rebind<uint8_t, D32> d8;
    const V32 exponent = hn::PromoteTo(d, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(panel)));
    const V32 normal = hn::ShiftLeft<23>(hn::Sub(exponent, hn::Set(d, 1)));
    // Two exponents are subnormal.
    const V32 subnormal = hn::Add(hn::Set(d, 0x00200000), hn::Mul(exponent, hn::Set(d, 0x00200000)));
    store_bytes(hn::BitCast(D8(), hn::IfThenElse(hn::Lt(exponent, hn::Set(d, 2)), subnormal, normal)),
                out + 8 * kVectorBytes);
  }
};

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
