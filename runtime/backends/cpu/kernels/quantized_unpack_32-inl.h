// Unpackers of block types of 32 elements, per instruction set. unpack(panel, sink) hands one interleaved
// block of kLanes rows to a sink, 16 elements (a group) at a time:
//   sink.unsigned_group(g, units)  codes u8; the type's offset is not subtracted
//   sink.signed_group(g, units)    codes i8
//   sink.scale(f32), sink.min(f32)
// before that, interleave(rows, stride, panel) makes a panel of rows of the file.
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

HWY_INLINE Units load_units(const std::byte* p) {
  return {{load_bytes(p), load_bytes(p + kVectorBytes), load_bytes(p + 2 * kVectorBytes),
           load_bytes(p + 3 * kVectorBytes)}};
}
// change(V8) of each.
template <class Change>
HWY_INLINE Units map_units(const Units& units, const Change& change) {
  return {{change(units.u[0]), change(units.u[1]), change(units.u[2]), change(units.u[3])}};
}
HWY_INLINE Units low_nibbles(const Units& units) {
  return map_units(units, [](V8 v) HWY_ATTR { return mask_bytes(v, 15); });
}
HWY_INLINE Units high_nibbles(const Units& units) {
  return map_units(units, [](V8 v) HWY_ATTR { return mask_bytes(shift_bytes_right<4>(v), 15); });
}
HWY_INLINE Units join_units(const Units& a, const Units& b) {
  return {{hn::Or(a.u[0], b.u[0]), hn::Or(a.u[1], b.u[1]), hn::Or(a.u[2], b.u[2]), hn::Or(a.u[3], b.u[3])}};
}
HWY_INLINE Units look_up_units(V8 table, const Units& units) {
  return map_units(units, [=](V8 v) HWY_ATTR { return hn::TableLookupBytes(table, v); });
}

struct UnpackQ4_0 {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ4_0);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<2, 1>(rows, stride, out);
    interleave_field<4, 4>(rows + 2, stride, out);
  }
  template <class Sink>
  static HWY_INLINE void unpack(const std::byte* panel, Sink& sink) {
    const Units codes = load_units(panel + 2 * kLanes);
    sink.unsigned_group(0, low_nibbles(codes));
    sink.unsigned_group(1, high_nibbles(codes));
    sink.scale(load_f16(panel));
  }
};

struct UnpackQ4_1 {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ4_1);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<2, 2>(rows, stride, out);
    interleave_field<4, 4>(rows + 4, stride, out);
  }
  template <class Sink>
  static HWY_INLINE void unpack(const std::byte* panel, Sink& sink) {
    const Units codes = load_units(panel + 4 * kLanes);
    sink.unsigned_group(0, low_nibbles(codes));
    sink.unsigned_group(1, high_nibbles(codes));
    sink.scale(load_f16(panel));
    sink.min(load_f16(panel + 2 * kLanes));
  }
};

// Codes of five bits: nibbles, and the fifth bits of each row in one lane, element j at bit j.
template <class Sink>
HWY_INLINE void unpack_codes5(const std::byte* high_bits, const std::byte* nibbles, Sink& sink) {
  // The byte that has bits 4 u to 4 u + 3 for unit u; those of an odd unit are its upper half.
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
  const auto fifths = [&](int group) HWY_ATTR {
    const V8 first = hn::TableLookupBytes(high, load_table(kBytes[2 * group]));
    const V8 second = hn::TableLookupBytes(high, load_table(kBytes[2 * group + 1]));
    return Units{
        {fifth(first, even_mask), fifth(first, odd_mask), fifth(second, even_mask), fifth(second, odd_mask)}};
  };
  const Units codes = load_units(nibbles);
  sink.unsigned_group(0, join_units(low_nibbles(codes), fifths(0)));
  sink.unsigned_group(1, join_units(high_nibbles(codes), fifths(1)));
}

struct UnpackQ5_0 {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ5_0);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<2, 1>(rows, stride, out);
    out = interleave_field<4, 1>(rows + 2, stride, out);
    interleave_field<4, 4>(rows + 6, stride, out);
  }
  template <class Sink>
  static HWY_INLINE void unpack(const std::byte* panel, Sink& sink) {
    unpack_codes5(panel + 2 * kLanes, panel + 6 * kLanes, sink);
    sink.scale(load_f16(panel));
  }
};

struct UnpackQ5_1 {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ5_1);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<2, 2>(rows, stride, out);
    out = interleave_field<4, 1>(rows + 4, stride, out);
    interleave_field<4, 4>(rows + 8, stride, out);
  }
  template <class Sink>
  static HWY_INLINE void unpack(const std::byte* panel, Sink& sink) {
    unpack_codes5(panel + 4 * kLanes, panel + 8 * kLanes, sink);
    sink.scale(load_f16(panel));
    sink.min(load_f16(panel + 2 * kLanes));
  }
};

struct UnpackQ8_0 {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ8_0);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<2, 1>(rows, stride, out);
    interleave_field<4, 8>(rows + 2, stride, out);
  }
  template <class Sink>
  static HWY_INLINE void unpack(const std::byte* panel, Sink& sink) {
    sink.signed_group(0, load_units(panel + 2 * kLanes));
    sink.signed_group(1, load_units(panel + 2 * kLanes + 4 * kVectorBytes));
    sink.scale(load_f16(panel));
  }
};

struct UnpackIq4Nl {
  static constexpr int64_t kBlockBytes = sizeof(BlockIq4Nl);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    UnpackQ4_0::interleave(rows, stride, out);
  }
  template <class Sink>
  static HWY_INLINE void unpack(const std::byte* panel, Sink& sink) {
    const V8 table = load_table(kIq4NlValues);
    const Units codes = load_units(panel + 2 * kLanes);
    sink.signed_group(0, look_up_units(table, low_nibbles(codes)));
    sink.signed_group(1, look_up_units(table, high_nibbles(codes)));
    sink.scale(load_f16(panel));
  }
};

struct UnpackMxfp4 {
  static constexpr int64_t kBlockBytes = sizeof(BlockMxfp4);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<1, 1>(rows, stride, out);
    interleave_field<4, 4>(rows + 1, stride, out);
  }
  template <class Sink>
  static HWY_INLINE void unpack(const std::byte* panel, Sink& sink) {
    alignas(16) static constexpr uint8_t kAbove12[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                                         12, 11, 10, 9,  8,  6,  4,  0};
    const V8 table = load_table(kAbove12);
    const Units codes = load_units(panel + kLanes);
    sink.unsigned_group(0, look_up_units(table, low_nibbles(codes)));
    sink.unsigned_group(1, look_up_units(table, high_nibbles(codes)));
    const D32 d;
    const hn::Rebind<uint8_t, D32> d8;
    const V32 exponent = hn::PromoteTo(d, hn::LoadU(d8, reinterpret_cast<const uint8_t*>(panel)));
    const V32 normal = hn::ShiftLeft<23>(hn::Sub(exponent, hn::Set(d, 1)));
    // 2^(exponent - 128); two of them are subnormal.
    const V32 subnormal = hn::Add(hn::Set(d, 0x00200000), hn::Mul(exponent, hn::Set(d, 0x00200000)));
    sink.scale(hn::BitCast(DF(), hn::IfThenElse(hn::Lt(exponent, hn::Set(d, 2)), subnormal, normal)));
  }
};

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
