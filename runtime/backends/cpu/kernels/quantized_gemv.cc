#include "runtime/backends/cpu/kernels/quantized_gemv.h"

#include <algorithm>

#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/quantized_gemv.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/quantized_sinks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// Fetched this far ahead.
inline constexpr int64_t kAheadBytes = 4096;

template <class Unpack, class Sink>
HWY_INLINE void dot_block(const std::byte* panel, const std::byte* x, Sink& sink) {
  sink.begin(x);
  Unpack::unpack(panel, sink);
  sink.end();
}

template <class Unpack, class Sink>
void dot_panel(const std::byte* rows, int64_t stride, int64_t block_count, const std::byte* x, float* sums,
               const std::byte* next) {
  constexpr int64_t kBlockBytes = Unpack::kBlockBytes, kPanelBytes = kLanes * kBlockBytes;
  alignas(64) int16_t group_scales[16 * 2 * kLanes];
  Sink sink{};  // not a constructor of its own, which GCC makes without the instruction set of this file
  if constexpr (requires { sink.scales; }) sink.scales = group_scales;
  sink.total = hn::Zero(DF());
  if (stride == 0) {
    for (int64_t b = 0; b < block_count; ++b, x += Sink::kActivationBytes) {
      prefetch_bytes(rows + b * kPanelBytes + kAheadBytes, kPanelBytes);
      dot_block<Unpack>(rows + b * kPanelBytes, x, sink);
    }
  } else {
    // Several blocks at a time: narrow stores have left for the cache when wide loads want them.
    constexpr int64_t kBatch = std::max<int64_t>(1, 160 / kBlockBytes);
    constexpr int64_t kAheadBatches = std::max<int64_t>(1, kAheadBytes / (kBatch * kPanelBytes));
    alignas(64) std::byte panel[kBatch * kPanelBytes];
    for (int64_t first = 0; first < block_count; first += kBatch) {
      const int64_t batch = std::min(kBatch, block_count - first), ahead = first + kAheadBatches * kBatch;
      const std::byte* fetched = ahead < block_count ? rows + ahead * kBlockBytes
                                 : next != nullptr   ? next + (ahead - block_count) * kBlockBytes
                                                     : nullptr;
      if (fetched != nullptr)
        for (int64_t lane = 0; lane < kLanes; ++lane)
          prefetch_bytes(fetched + lane * stride, batch * kBlockBytes);
      for (int64_t b = 0; b < batch; ++b)
        Unpack::interleave(rows + (first + b) * kBlockBytes, stride, panel + b * kPanelBytes);
      for (int64_t b = 0; b < batch; ++b, x += Sink::kActivationBytes)
        dot_block<Unpack>(panel + b * kPanelBytes, x, sink);
    }
  }
  hn::StoreU(sink.total, DF(), sums);
}

// Likewise for types that are unpacked from rows only.
template <class Unpack, class Sink>
void dot_rows(const std::byte* rows, int64_t stride, int64_t block_count, const std::byte* x, float* sums,
              const std::byte* next) {
  constexpr int64_t kBlockBytes = Unpack::kBlockBytes, kAheadBlocks = 2;
  Sink sink{};
  sink.total = hn::Zero(DF());
  for (int64_t b = 0; b < block_count; ++b, x += Sink::kActivationBytes) {
    const int64_t ahead = b + kAheadBlocks;
    const std::byte* fetched = ahead < block_count ? rows + ahead * kBlockBytes
                               : next != nullptr   ? next + (ahead - block_count) * kBlockBytes
                                                   : nullptr;
    if (fetched != nullptr)
      for (int64_t lane = 0; lane < kLanes; ++lane) prefetch_bytes(fetched + lane * stride, kBlockBytes);
    sink.begin(x);
    Unpack::unpack(rows + b * kBlockBytes, stride, sink);
    sink.end();
  }
  hn::StoreU(sink.total, DF(), sums);
}

template <class Block, DecodeGrid* kDecode>
DotPanel* dot_grid(bool wide) {
  using Unpack = UnpackGrid<Block, kDecode>;
  return wide ? dot_rows<Unpack, DotWide256> : dot_rows<Unpack, DotSigned256>;
}

DotPanel* dot_panel_for(const QuantizedLayout& layout) {
  const bool wide = layout.form == DotForm::kWide32 || layout.form == DotForm::kWide256;
  switch (layout.type) {
    case DType::kQ4_0: return dot_panel<UnpackQ4_0, DotUnsigned32<true, false>>;
    case DType::kQ4_1: return dot_panel<UnpackQ4_1, DotUnsigned32<false, true>>;
    case DType::kQ5_0: return dot_panel<UnpackQ5_0, DotUnsigned32<true, false>>;
    case DType::kQ5_1: return dot_panel<UnpackQ5_1, DotUnsigned32<false, true>>;
    case DType::kQ8_0: return wide ? dot_panel<UnpackQ8_0, DotWide32> : dot_panel<UnpackQ8_0, DotSigned32>;
    case DType::kIQ4_NL:
      return wide ? dot_panel<UnpackIq4Nl, DotWide32> : dot_panel<UnpackIq4Nl, DotSigned32>;
    case DType::kMXFP4: return dot_panel<UnpackMxfp4, DotUnsigned32<true, false>>;
    case DType::kQ2_K: return dot_panel<UnpackQ2K, DotUnsigned256<false, true>>;
    case DType::kQ3_K: return dot_panel<UnpackQ3K, DotUnsigned256<true, false>>;
    case DType::kQ4_K: return dot_panel<UnpackQ4K, DotUnsigned256<false, true>>;
    case DType::kQ5_K: return dot_panel<UnpackQ5K, DotUnsigned256<false, true>>;
    case DType::kQ6_K: return dot_panel<UnpackQ6K, DotUnsigned256<true, false>>;
    case DType::kIQ4_XS:
      return wide ? dot_panel<UnpackIq4Xs, DotWide256> : dot_panel<UnpackIq4Xs, DotSigned256>;
    case DType::kTQ1_0:
      return wide ? dot_panel<UnpackTq1_0, DotWide256> : dot_panel<UnpackTq1_0, DotSigned256>;
    case DType::kTQ2_0:
      return wide ? dot_panel<UnpackTq2_0, DotWide256> : dot_panel<UnpackTq2_0, DotSigned256>;
    case DType::kIQ1_S: return dot_grid<BlockIq1S, decode_iq1_s>(wide);
    case DType::kIQ1_M: return dot_grid<BlockIq1M, decode_iq1_m>(wide);
    case DType::kIQ2_XXS: return dot_grid<BlockIq2Xxs, decode_iq2_xxs>(wide);
    case DType::kIQ2_XS: return dot_grid<BlockIq2Xs, decode_iq2_xs>(wide);
    case DType::kIQ2_S: return dot_grid<BlockIq2S, decode_iq2_s>(wide);
    case DType::kIQ3_XXS: return dot_grid<BlockIq3Xxs, decode_iq3_xxs>(wide);
    case DType::kIQ3_S: return dot_grid<BlockIq3S, decode_iq3_s>(wide);
    default: return nullptr;
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(dot_panel_for);

DotPanel* find_dot_panel(const QuantizedLayout& layout) {
  return HWY_DYNAMIC_DISPATCH(dot_panel_for)(layout);
}

}  // namespace tessera::cpu
#endif
