// Dot products of unpacked blocks of 32 elements, per instruction set: kRows rows of quantised activations
// with two panels. Each sum is one chain over the blocks in ascending order:
//   sum = fma(scale_w * scale_x, float(integer dot), sum), then sum = fma(min_w, scale_x * (sum of codes),
//   sum)
// so its bits do not depend on the other rows.
#if defined(TSR_QUANTIZED_DOT_32_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TSR_QUANTIZED_DOT_32_INL_H_
#undef TSR_QUANTIZED_DOT_32_INL_H_
#else
#define TSR_QUANTIZED_DOT_32_INL_H_
#endif

#include "runtime/backends/cpu/kernels/quantized_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// Two unpacked panels, `stride` bytes apart, of consecutive blocks; kRows rows of activations, x_stride bytes
// apart; sums [kRows][2 kLanes], continued.
struct DotOperands {
  int64_t block_count;
  const std::byte* panels;
  int64_t stride;
  const std::byte* x;
  int64_t x_stride;
  float* sums;
};

template <int kRows>
struct TileSums {
  VF sums[kRows][2];
  HWY_INLINE explicit TileSums(const float* p) {
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 2
      for (int p2 = 0; p2 < 2; ++p2) sums[m][p2] = hn::Load(DF(), p + (2 * m + p2) * kLanes);
  }
  HWY_INLINE void store(float* p) const {
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 2
      for (int p2 = 0; p2 < 2; ++p2) hn::Store(sums[m][p2], DF(), p + (2 * m + p2) * kLanes);
  }
};

// Initial values of sums: zero, or those of the activations.
template <class Products, bool kOffset>
HWY_INLINE typename Products::Bytes load_start(const std::byte* p) {
  const hn::DFromV<typename Products::Bytes> d;
  return kOffset ? hn::BitCast(d, load_unit(p)) : hn::Zero(d);
}

// Adds products with kUnits units of unsigned codes.
template <class Products, int kRows, int kUnits>
HWY_INLINE void add_units(const std::byte* w, int64_t stride, const std::byte* x, int64_t x_stride,
                          typename Products::Bytes (&sums)[kRows][2]) {
#pragma GCC unroll 8
  for (int u = 0; u < kUnits; ++u) {
    const V8 w0 = load_bytes(w + u * kVectorBytes), w1 = load_bytes(w + stride + u * kVectorBytes);
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const V8 unit = load_unit(x + m * x_stride + 4 * u);
      sums[m][0] = Products::add_bytes(sums[m][0], w0, unit);
      sums[m][1] = Products::add_bytes(sums[m][1], w1, unit);
    }
  }
}

// Activations: 32 codes i8; start of plain sums; f32 scale; f32 scale times the sum of all codes; start of
// VNNI's sums. A start is the sum of the codes times -offset.
//
// 16-bit sums: with an offset, 16 products of (code - offset) stay within 16 * 16 * 127 and sums on the way
// wrap; without, half a block is summed at a time, 8 * 31 * 127 at most.
template <class Products, bool kOffset, bool kMin, int kRows>
void dot_unsigned_32(const DotOperands& o) {
  const DF d;
  TileSums<kRows> tile(o.sums);
  const std::byte *w = o.panels, *x = o.x;
  for (int64_t b = 0; b < o.block_count; ++b, w += (kMin ? 10 : 9) * kVectorBytes, x += 48) {
    V32 dots[kRows][2];
    typename Products::Bytes sums[kRows][2];
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m)
      sums[m][0] = sums[m][1] =
          load_start<Products, kOffset>(x + m * o.x_stride + 32 + 12 * Products::kStart);
    add_units<Products, kRows, 4>(w, o.stride, x, o.x_stride, sums);
    if constexpr (!kOffset) {
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m)
#pragma GCC unroll 2
        for (int p = 0; p < 2; ++p) {
          dots[m][p] = Products::finish(sums[m][p]);
          sums[m][p] = load_start<Products, false>(x);
        }
    }
    add_units<Products, kRows, 4>(w + 4 * kVectorBytes, o.stride, x + 16, o.x_stride, sums);
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p) {
      const VF scale = load_floats(w + p * o.stride + 8 * kVectorBytes);
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
        V32 dot = Products::finish(sums[m][p]);
        if constexpr (!kOffset) dot = hn::Add(dot, dots[m][p]);
        const VF factor = hn::Mul(scale, hn::Set(d, load_float(x + m * o.x_stride + 36)));
        tile.sums[m][p] = hn::MulAdd(factor, hn::ConvertTo(d, dot), tile.sums[m][p]);
        if constexpr (kMin)
          tile.sums[m][p] = hn::MulAdd(load_floats(w + p * o.stride + 9 * kVectorBytes),
                                       hn::Set(d, load_float(x + m * o.x_stride + 40)), tile.sums[m][p]);
      }
    }
  }
  tile.store(o.sums);
}

// Adds kUnits units of signed codes to 32-bit sums.
template <class Products, int kRows, int kUnits>
HWY_INLINE void add_signed_units(const std::byte* w, int64_t stride, const std::byte* x, int64_t x_stride,
                                 V32 (&sums)[kRows][2]) {
#pragma GCC unroll 16
  for (int u = 0; u < 2 * kUnits; ++u) {
    const V16 w0 = hn::BitCast(D16(), load_bytes(w + u * kVectorBytes));
    const V16 w1 = hn::BitCast(D16(), load_bytes(w + stride + u * kVectorBytes));
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) {
      const V16 pair = hn::BitCast(D16(), load_unit(x + m * x_stride + 4 * u));
      sums[m][0] = Products::add_words(sums[m][0], w0, pair);
      sums[m][1] = Products::add_words(sums[m][1], w1, pair);
    }
  }
}

// Activations: 32 codes i16, in a unit 0 2 1 3; f32 scale. kScales: 1, or 2 for halves with their own.
template <class Products, int kScales, int kRows>
void dot_signed_32(const DotOperands& o) {
  const DF d;
  TileSums<kRows> tile(o.sums);
  const std::byte *w = o.panels, *x = o.x;
  for (int64_t b = 0; b < o.block_count; ++b, w += (16 + kScales) * kVectorBytes, x += 80) {
#pragma GCC unroll 2
    for (int s = 0; s < kScales; ++s) {
      constexpr int kUnits = 8 / kScales;
      V32 sums[kRows][2];
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) sums[m][0] = sums[m][1] = hn::Zero(D32());
      add_signed_units<Products, kRows, kUnits>(w + s * 2 * kUnits * kVectorBytes, o.stride,
                                                x + s * 8 * kUnits, o.x_stride, sums);
#pragma GCC unroll 2
      for (int p = 0; p < 2; ++p) {
        const VF scale = load_floats(w + p * o.stride + (16 + s) * kVectorBytes);
#pragma GCC unroll 8
        for (int m = 0; m < kRows; ++m) {
          const VF factor = hn::Mul(scale, hn::Set(d, load_float(x + m * o.x_stride + 64)));
          tile.sums[m][p] = hn::MulAdd(factor, hn::ConvertTo(d, sums[m][p]), tile.sums[m][p]);
        }
      }
    }
  }
  tile.store(o.sums);
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
