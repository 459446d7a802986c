// Unpackers of the grid types, per instruction set, as those of quantized_unpack_k-inl.h, but from rows of the
// file: a row's codes are looked up eight at a time, then rows are interleaved. unpack(rows, stride, sink) takes one
// block of kLanes rows, `stride` bytes apart.
#if defined(TSR_QUANTIZED_UNPACK_IQ_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TSR_QUANTIZED_UNPACK_IQ_INL_H_
#undef TSR_QUANTIZED_UNPACK_IQ_INL_H_
#else
#define TSR_QUANTIZED_UNPACK_IQ_INL_H_
#endif

#include "graph/base/blocks/block_layout.h"
#include "runtime/backends/cpu/kernels/quantized_grids.h"
#include "runtime/backends/cpu/kernels/quantized_unpack_32-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

template <class Block, DecodeGrid* kDecode>
struct UnpackGrid {
  static constexpr int64_t kBlockBytes = sizeof(Block);
  template <class Sink>
  static HWY_INLINE void unpack(const std::byte* rows, int64_t stride, Sink& sink) {
    constexpr int64_t kStride = sizeof(GridCodes);
    GridCodes lanes[kLanes];
    alignas(64) float scale[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      kDecode(rows + lane * stride, lanes + lane);
      scale[lane] = lanes[lane].scale;
    }
    const auto* codes = reinterpret_cast<const std::byte*>(lanes[0].codes);
    const auto* scales = reinterpret_cast<const std::byte*>(lanes[0].scales);
    const D32 d;
    for (int half = 0; half < 2; ++half) {
      const Units pairs = interleave_units_of_16(scales + 16 * half, kStride);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        // Scales of groups g and g + 1 in the halves of a lane.
        const int g = 8 * half + 2 * i;
        const V32 pair = hn::BitCast(d, pairs.u[i]);
        const V32 low = hn::And(pair, hn::Set(d, 0xffff)), high = hn::Xor(pair, low);
        const V32 shifted =
            hn::BitCast(d, hn::ShiftRight<16>(hn::BitCast(hn::RebindToUnsigned<D32>(), pair)));
        sink.scaled_group(g, interleave_units_of_16(codes + 16 * g, kStride),
                          hn::BitCast(D16(), hn::Or(low, hn::ShiftLeft<16>(low))));
        sink.scaled_group(g + 1, interleave_units_of_16(codes + 16 * g + 16, kStride),
                          hn::BitCast(D16(), hn::Or(high, shifted)));
      }
    }
    sink.scale(hn::Load(DF(), scale));
  }
};

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
