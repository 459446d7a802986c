// Dot products of unpacked blocks of 256 elements, per instruction set: kRows rows of quantised activations
// with two panels. Each sum is one chain over the blocks in ascending order:
//   sum = fma(scale_w * scale_x, float(D), sum), then sum = fma(-(min_scale_w * scale_x), float(M), sum)
// D is the sum over groups of integer scale times integer dot, M that of integer minimum times sum of codes;
// both are exact.
#if defined(TSR_QUANTIZED_DOT_K_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TSR_QUANTIZED_DOT_K_INL_H_
#undef TSR_QUANTIZED_DOT_K_INL_H_
#else
#define TSR_QUANTIZED_DOT_K_INL_H_
#endif

#include "runtime/backends/cpu/kernels/quantized_dot_32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// Activations: 256 codes i8; for each group of 16 the start of plain sums; 16 sums i16 of groups; f32 scale;
// at byte 368 for each group the start of VNNI's sums. A start is the sum of the group's codes times -offset.
//
// 16-bit sums: 8 products of a code of at most 31, or of a code of six bits minus its offset of 32 (sums on
// the way wrap).
template <class Products, bool kOffset, bool kMin, int kRows>
void dot_unsigned_256(const DotOperands& o) {
  const DF d;
  TileSums<kRows> tile(o.sums);
  const std::byte *w = o.panels, *x = o.x;
  for (int64_t b = 0; b < o.block_count; ++b, w += (kMin ? 90 : 81) * kVectorBytes, x += 432) {
    V32 dots[kRows][2];
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) dots[m][0] = dots[m][1] = hn::Zero(D32());
    for (int g = 0; g < 16; ++g) {
      typename Products::Bytes sums[kRows][2];
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m)
        sums[m][0] = sums[m][1] =
            load_start<Products, kOffset>(x + m * o.x_stride + 256 + 112 * Products::kStart + 4 * g);
      add_units<Products, kRows, 4>(w + 4 * g * kVectorBytes, o.stride, x + 16 * g, o.x_stride, sums);
#pragma GCC unroll 2
      for (int p = 0; p < 2; ++p) {
        const V16 scale = hn::BitCast(D16(), load_bytes(w + p * o.stride + kScales256 + g * kVectorBytes));
#pragma GCC unroll 8
        for (int m = 0; m < kRows; ++m)
          dots[m][p] = add_in_order(dots[m][p], Products::scale(sums[m][p], scale));
      }
    }
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p) {
      const VF scale = load_floats(w + p * o.stride + kScale256);
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
        const VF factor = hn::Mul(scale, hn::Set(d, load_float(x + m * o.x_stride + 352)));
        tile.sums[m][p] = hn::MulAdd(factor, hn::ConvertTo(d, dots[m][p]), tile.sums[m][p]);
      }
    }
    if constexpr (kMin) {
#pragma GCC unroll 2
      for (int p = 0; p < 2; ++p) {
        V32 mins[kRows];
#pragma GCC unroll 8
        for (int m = 0; m < kRows; ++m) mins[m] = hn::Zero(D32());
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) {
          const V16 min = hn::BitCast(D16(), load_bytes(w + p * o.stride + kMins256 + i * kVectorBytes));
#pragma GCC unroll 8
          for (int m = 0; m < kRows; ++m) {
            const V16 sums = hn::BitCast(D16(), load_unit(x + m * o.x_stride + 320 + 4 * i));
            mins[m] = Products::add_words(mins[m], min, sums);
          }
        }
        const VF scale = load_floats(w + p * o.stride + kMinScale256);
#pragma GCC unroll 8
        for (int m = 0; m < kRows; ++m) {
          const VF factor = hn::Mul(scale, hn::Set(d, load_float(x + m * o.x_stride + 352)));
          tile.sums[m][p] = hn::NegMulAdd(factor, hn::ConvertTo(d, mins[m]), tile.sums[m][p]);
        }
      }
    }
  }
  tile.store(o.sums);
}

// Activations: 256 codes i16, in a unit 0 2 1 3; f32 scale.
template <class Products, int kRows>
void dot_signed_256(const DotOperands& o) {
  const DF d;
  TileSums<kRows> tile(o.sums);
  const std::byte *w = o.panels, *x = o.x;
  for (int64_t b = 0; b < o.block_count; ++b, w += 129 * kVectorBytes, x += 528) {
    V32 dots[kRows][2];
#pragma GCC unroll 8
    for (int m = 0; m < kRows; ++m) dots[m][0] = dots[m][1] = hn::Zero(D32());
    for (int i = 0; i < 8; ++i)
      add_signed_units<Products, kRows, 8>(w + 16 * i * kVectorBytes, o.stride, x + 64 * i, o.x_stride, dots);
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p) {
      const VF scale = load_floats(w + p * o.stride + 128 * kVectorBytes);
#pragma GCC unroll 8
      for (int m = 0; m < kRows; ++m) {
        const VF factor = hn::Mul(scale, hn::Set(d, load_float(x + m * o.x_stride + 512)));
        tile.sums[m][p] = hn::MulAdd(factor, hn::ConvertTo(d, dots[m][p]), tile.sums[m][p]);
      }
    }
  }
  tile.store(o.sums);
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
