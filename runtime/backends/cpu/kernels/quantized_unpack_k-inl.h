// Unpackers of block types of 256 elements, per instruction set, as those of quantized_unpack_32-inl.h.
// Integer scales come before the codes:
//   sink.group_scale(g, i16[2])  scale of group g (0 to 15), twice
//   sink.group_min(i, i16[2])    integer minima of groups 2 i and 2 i + 1
//   sink.min(f32)                the scale of the minima, which are subtracted
//   sink.scaled_group(g, units, i16[2])  codes i8, to be multiplied with an integer scale
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

// Four scales, bytes of a lane, each for kGroups groups from `first` on.
template <int kGroups, bool kSigned, class Sink>
HWY_INLINE void emit_scales(V8 scales, int first, Sink& sink) {
  const auto emit = [&](int i, V16 twice) HWY_ATTR {
    if (kSigned) twice = hn::ShiftRight<8>(twice);
#pragma GCC unroll 2
    for (int g = 0; g < kGroups; ++g) sink.group_scale(first + i * kGroups + g, twice);
  };
  emit(0, pick_bytes<0, 0, kSigned>(scales));
  emit(1, pick_bytes<1, 1, kSigned>(scales));
  emit(2, pick_bytes<2, 2, kSigned>(scales));
  emit(3, pick_bytes<3, 3, kSigned>(scales));
}

template <int kRight>
HWY_INLINE Units mask_units_right(const Units& units, uint8_t mask) {
  return map_units(units, [=](V8 v) HWY_ATTR { return mask_bytes(shift_bytes_right<kRight>(v), mask); });
}
template <int kLeft>
HWY_INLINE Units mask_units_left(const Units& units, uint8_t mask) {
  return map_units(units, [=](V8 v) HWY_ATTR { return mask_bytes(shift_bytes_left<kLeft>(v), mask); });
}

struct UnpackQ2K {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ2_K);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<4, 20>(rows, stride, out);
    interleave_field<2, 2>(rows + 80, stride, out);
  }
  template <class Sink>
  static HWY_INLINE void unpack(const std::byte* panel, Sink& sink) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const V8 bytes = load_bytes(panel + i * kVectorBytes);
      const V8 mins = mask_bytes(shift_bytes_right<4>(bytes), 15);
      emit_scales<1, false>(mask_bytes(bytes, 15), 4 * i, sink);
      sink.group_min(2 * i, pick_bytes<0, 1, false>(mins));
      sink.group_min(2 * i + 1, pick_bytes<2, 3, false>(mins));
    }
    // Two bits of a byte for each of four groups of a half.
    for (int i = 0; i < 4; ++i) {
      const Units codes = load_units(panel + 4 * (i + 1) * kVectorBytes);
      const int g = i / 2 * 8 + i % 2;
      sink.unsigned_group(g, mask_units_right<0>(codes, 3));
      sink.unsigned_group(g + 2, mask_units_right<2>(codes, 3));
      sink.unsigned_group(g + 4, mask_units_right<4>(codes, 3));
      sink.unsigned_group(g + 6, mask_units_right<6>(codes, 3));
    }
    sink.scale(load_f16(panel + 80 * kLanes));
    sink.min(load_f16(panel + 82 * kLanes));
  }
};

struct UnpackQ3K {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ3_K);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<4, 24>(rows, stride, out);
    out = interleave_field<4, 3>(rows + 96, stride, out);
    interleave_field<2, 1>(rows + 108, stride, out);
  }
  template <class Sink>
  static HWY_INLINE void unpack(const std::byte* panel, Sink& sink) {
    const V8 s0 = load_bytes(panel + 96 * kLanes), s1 = load_bytes(panel + 100 * kLanes);
    const V8 s2 = load_bytes(panel + 104 * kLanes), offset = hn::Set(D8(), 32);
    const auto emit = [&](V8 low, V8 high, int first) HWY_ATTR {
      emit_scales<1, true>(hn::Sub(hn::Or(mask_bytes(low, 15), mask_bytes(high, 48)), offset), first, sink);
    };
    emit(s0, shift_bytes_left<4>(s2), 0);
    emit(s1, shift_bytes_left<2>(s2), 4);
    emit(shift_bytes_right<4>(s0), s2, 8);
    emit(shift_bytes_right<4>(s1), shift_bytes_right<2>(s2), 12);
    // Bit 2 of the codes: one bit of a byte for each of eight groups.
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const Units high = load_units(panel + 4 * i * kVectorBytes);
      const Units first = load_units(panel + (8 + 4 * i) * kVectorBytes);
      sink.unsigned_group(i, join_units(mask_units_right<0>(first, 3), mask_units_left<2>(high, 4)));
      sink.unsigned_group(i + 2, join_units(mask_units_right<2>(first, 3), mask_units_left<1>(high, 4)));
      sink.unsigned_group(i + 4, join_units(mask_units_right<4>(first, 3), mask_units_left<0>(high, 4)));
      sink.unsigned_group(i + 6, join_units(mask_units_right<6>(first, 3), mask_units_right<1>(high, 4)));
      const Units second = load_units(panel + (16 + 4 * i) * kVectorBytes);
      sink.unsigned_group(i + 8, join_units(mask_units_right<0>(second, 3), mask_units_right<2>(high, 4)));
      sink.unsigned_group(i + 10, join_units(mask_units_right<2>(second, 3), mask_units_right<3>(high, 4)));
      sink.unsigned_group(i + 12, join_units(mask_units_right<4>(second, 3), mask_units_right<4>(high, 4)));
      sink.unsigned_group(i + 14, join_units(mask_units_right<6>(second, 3), mask_units_right<5>(high, 4)));
    }
    sink.scale(load_f16(panel + 108 * kLanes));
  }
};

// Scales and minima of Q4_K and Q5_K: six bits each, in three units; both scales of the block before them.
template <class Sink>
HWY_INLINE void unpack_scales6(const std::byte* panel, Sink& sink) {
  const V8 s0 = load_bytes(panel + 4 * kLanes), s1 = load_bytes(panel + 8 * kLanes);
  const V8 s2 = load_bytes(panel + 12 * kLanes);
  emit_scales<2, false>(mask_bytes(s0, 63), 0, sink);
  emit_scales<2, false>(hn::Or(mask_bytes(s2, 15), mask_bytes(shift_bytes_right<2>(s0), 48)), 8, sink);
  const auto emit_mins = [&](V8 mins, int first) HWY_ATTR {
    sink.group_min(first, pick_bytes<0, 0, false>(mins));
    sink.group_min(first + 1, pick_bytes<1, 1, false>(mins));
    sink.group_min(first + 2, pick_bytes<2, 2, false>(mins));
    sink.group_min(first + 3, pick_bytes<3, 3, false>(mins));
  };
  emit_mins(mask_bytes(s1, 63), 0);
  emit_mins(hn::Or(mask_bytes(shift_bytes_right<4>(s2), 15), mask_bytes(shift_bytes_right<2>(s1), 48)), 4);
  sink.scale(load_f16(panel));
  sink.min(load_f16(panel + 2 * kLanes));
}

struct UnpackQ4K {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ4_K);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<2, 2>(rows, stride, out);
    out = interleave_field<4, 3>(rows + 4, stride, out);
    interleave_field<4, 32>(rows + 16, stride, out);
  }
  template <class Sink>
  static HWY_INLINE void unpack(const std::byte* panel, Sink& sink) {
    unpack_scales6(panel, sink);
    for (int i = 0; i < 8; ++i) {
      const Units codes = load_units(panel + 16 * kLanes + 4 * i * kVectorBytes);
      const int g = i / 2 * 4 + i % 2;
      sink.unsigned_group(g, low_nibbles(codes));
      sink.unsigned_group(g + 2, high_nibbles(codes));
    }
  }
};

struct UnpackQ5K {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ5_K);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<2, 2>(rows, stride, out);
    out = interleave_field<4, 3>(rows + 4, stride, out);
    interleave_field<4, 40>(rows + 16, stride, out);
  }
  template <class Sink>
  static HWY_INLINE void unpack(const std::byte* panel, Sink& sink) {
    unpack_scales6(panel, sink);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const Units high = load_units(panel + 16 * kLanes + 4 * i * kVectorBytes);
      const auto emit = [&](int part, const Units& even, const Units& odd) HWY_ATTR {
        const Units codes = load_units(panel + 16 * kLanes + (8 + 8 * part + 4 * i) * kVectorBytes);
        sink.unsigned_group(4 * part + i, join_units(low_nibbles(codes), even));
        sink.unsigned_group(4 * part + 2 + i, join_units(high_nibbles(codes), odd));
      };
      emit(0, mask_units_left<4>(high, 16), mask_units_left<3>(high, 16));
      emit(1, mask_units_left<2>(high, 16), mask_units_left<1>(high, 16));
      emit(2, mask_units_left<0>(high, 16), mask_units_right<1>(high, 16));
      emit(3, mask_units_right<2>(high, 16), mask_units_right<3>(high, 16));
    }
  }
};

struct UnpackQ6K {
  static constexpr int64_t kBlockBytes = sizeof(BlockQ6_K);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<4, 52>(rows, stride, out);
    interleave_field<2, 1>(rows + 208, stride, out);
  }
  template <class Sink>
  static HWY_INLINE void unpack(const std::byte* panel, Sink& sink) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      emit_scales<1, true>(load_bytes(panel + (48 + i) * kVectorBytes), 4 * i, sink);
    for (int i = 0; i < 4; ++i) {
      const int unit = i / 2 * 16 + i % 2 * 4, g = i / 2 * 8 + i % 2;
      const Units low0 = load_units(panel + unit * kVectorBytes);
      const Units low1 = load_units(panel + (unit + 8) * kVectorBytes);
      const Units high = load_units(panel + (32 + 4 * i) * kVectorBytes);
      sink.unsigned_group(g, join_units(low_nibbles(low0), mask_units_left<4>(high, 48)));
      sink.unsigned_group(g + 2, join_units(low_nibbles(low1), mask_units_left<2>(high, 48)));
      sink.unsigned_group(g + 4, join_units(high_nibbles(low0), mask_units_left<0>(high, 48)));
      sink.unsigned_group(g + 6, join_units(high_nibbles(low1), mask_units_right<2>(high, 48)));
    }
    sink.scale(load_f16(panel + 208 * kLanes));
  }
};

// Three values: codes 0 to 2 stand for -1, 0 and 1, without integer scales.
template <class Sink>
HWY_INLINE void emit_ternary(int g, const Units& codes, Sink& sink) {
  sink.scaled_group(g, map_units(codes, [](V8 v) HWY_ATTR { return hn::Sub(v, hn::Set(D8(), 1)); }),
                    hn::Set(D16(), 1));
}

struct UnpackTq2_0 {
  static constexpr int64_t kBlockBytes = sizeof(BlockTq2_0);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<4, 16>(rows, stride, out);
    interleave_field<2, 1>(rows + 64, stride, out);
  }
  template <class Sink>
  static HWY_INLINE void unpack(const std::byte* panel, Sink& sink) {
    for (int i = 0; i < 4; ++i) {
      const Units codes = load_units(panel + 4 * i * kVectorBytes);
      const int g = i / 2 * 8 + i % 2;
      emit_ternary(g, mask_units_right<0>(codes, 3), sink);
      emit_ternary(g + 2, mask_units_right<2>(codes, 3), sink);
      emit_ternary(g + 4, mask_units_right<4>(codes, 3), sink);
      emit_ternary(g + 6, mask_units_right<6>(codes, 3), sink);
    }
    sink.scale(load_f16(panel + 64 * kLanes));
  }
};

// Bytes of five trits, of which trits are taken one after another: the first is 3 * byte / 256, and the rest of that
// division the byte of the others.
struct Trits {
  V16 even, odd;
  HWY_INLINE explicit Trits(V8 bytes)
      : even(hn::And(hn::BitCast(D16(), bytes), hn::Set(D16(), 0xff))),
        odd(hn::And(hn::BitCast(D16(), shift_bytes_right<8>(bytes)), hn::Set(D16(), 0xff))) {}
  HWY_INLINE V8 take() {
    const D16 d;
    const V16 three = hn::Set(d, 3), low = hn::Set(d, 0xff);
    const V16 a = hn::Mul(even, three), b = hn::Mul(odd, three);
    even = hn::And(a, low);
    odd = hn::And(b, low);
    return hn::BitCast(D8(), hn::Or(hn::ShiftRight<8>(a), hn::AndNot(low, b)));
  }
};

struct UnpackTq1_0 {
  static constexpr int64_t kBlockBytes = sizeof(BlockTq1_0);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<4, 12>(rows, stride, out);
    out = interleave_field<4, 1>(rows + 48, stride, out);
    interleave_field<2, 1>(rows + 52, stride, out);
  }
  template <class Sink>
  static HWY_INLINE void unpack(const std::byte* panel, Sink& sink) {
    for (int i = 0; i < 3; ++i) {
      const Units bytes = load_units(panel + 4 * i * kVectorBytes);
      Trits trits[4] = {Trits(bytes.u[0]), Trits(bytes.u[1]), Trits(bytes.u[2]), Trits(bytes.u[3])};
      for (int n = 0; n < 5; ++n)
        emit_ternary(i < 2 ? 2 * n + i : 10 + n,
                     Units{{trits[0].take(), trits[1].take(), trits[2].take(), trits[3].take()}}, sink);
    }
    Trits last(load_bytes(panel + 48 * kLanes));
    const V8 u0 = last.take(), u1 = last.take(), u2 = last.take(), u3 = last.take();
    emit_ternary(15, Units{{u0, u1, u2, u3}}, sink);
    sink.scale(load_f16(panel + 52 * kLanes));
  }
};

struct UnpackIq4Xs {
  static constexpr int64_t kBlockBytes = sizeof(BlockIq4Xs);
  static HWY_INLINE void interleave(const std::byte* rows, int64_t stride, std::byte* out) {
    out = interleave_field<2, 2>(rows, stride, out);
    out = interleave_field<4, 1>(rows + 4, stride, out);
    interleave_field<4, 32>(rows + 8, stride, out);
  }
  template <class Sink>
  static HWY_INLINE void unpack(const std::byte* panel, Sink& sink) {
    const D32 d;
    const hn::Rebind<uint16_t, D32> du16;
    const V8 table = load_table(kIq4NlValues);
    V32 high = hn::PromoteTo(d, hn::LoadU(du16, reinterpret_cast<const uint16_t*>(panel + 2 * kLanes)));
    V32 low = hn::BitCast(d, load_bytes(panel + 4 * kLanes));
    for (int i = 0; i < 8; ++i) {
      const V32 both = hn::Or(hn::And(low, hn::Set(d, 15)), hn::ShiftLeft<4>(hn::And(high, hn::Set(d, 3))));
      const V32 scale = hn::Sub(both, hn::Set(d, 32));
      const V16 twice =
          hn::BitCast(D16(), hn::Or(hn::And(scale, hn::Set(d, 0xffff)), hn::ShiftLeft<16>(scale)));
      const Units codes = load_units(panel + 8 * kLanes + 4 * i * kVectorBytes);
      sink.scaled_group(2 * i, look_up_units(table, low_nibbles(codes)), twice);
      sink.scaled_group(2 * i + 1, look_up_units(table, high_nibbles(codes)), twice);
      low = hn::ShiftRight<4>(low);
      high = hn::ShiftRight<2>(high);
    }
    sink.scale(load_f16(panel));
  }
};

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
