// Decoder of NF4 for products of f32, per instruction set: blocks of kLanes rows of the file to f32, with the bits of
// decode_blocks.
#if defined(TSR_QUANTIZED_UNPACK_NF4_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TSR_QUANTIZED_UNPACK_NF4_INL_H_
#undef TSR_QUANTIZED_UNPACK_NF4_INL_H_
#else
#define TSR_QUANTIZED_UNPACK_NF4_INL_H_
#endif

#include <algorithm>

#include "graph/base/blocks/block_layout.h"
#include "runtime/backends/cpu/kernels/quantized_rows.h"
#include "runtime/backends/cpu/kernels/quantized_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// The value of the code in each lane: the table in vectors of kLanes values, chosen by the code's upper bits.
HWY_INLINE VF look_up_nf4(V32 codes) {
  const DF d;
  const D32 d32;
  const auto index =
      hn::IndicesFromVec(d, hn::And(codes, hn::Set(d32, static_cast<int32_t>(kLanes - 1) & 15)));
  if constexpr (kLanes >= 16) {
    return hn::TableLookupLanes(hn::LoadU(d, kNf4Values), index);
  } else {
    const V32 upper = hn::AndNot(hn::Set(d32, static_cast<int32_t>(kLanes - 1)), codes);
    VF value = hn::TableLookupLanes(hn::LoadU(d, kNf4Values), index);
    for (int64_t first = kLanes; first < 16; first += kLanes) {
      const auto chosen = hn::RebindMask(d, hn::Eq(upper, hn::Set(d32, static_cast<int32_t>(first))));
      value = hn::IfThenElse(chosen, hn::TableLookupLanes(hn::LoadU(d, kNf4Values + first), index), value);
    }
    return value;
  }
}

// Decodes one block of kLanes rows to out[k * row_stride + lane].
HWY_INLINE void decode_nf4_block(const std::byte* rows, int64_t stride, float* out, int64_t row_stride) {
  constexpr int64_t kScaleBytes = sizeof(BlockNf4::scale);
  constexpr int kUnits = sizeof(BlockNf4::codes) / 4;
  alignas(64) std::byte scales[kScaleBytes * kLanes];
  alignas(64) std::byte units[kUnits * kVectorBytes];
  interleave_field<kScaleBytes, 1>(rows, stride, scales);
  interleave_field<4, kUnits>(rows + kScaleBytes, stride, units);
  const VF scale = load_floats(scales);
  const auto store = [&](V32 codes, int k) HWY_ATTR {
    const V32 code = hn::And(codes, hn::Set(D32(), 15));
    hn::StoreU(hn::Mul(look_up_nf4(code), scale), DF(), out + k * row_stride);
  };
#pragma GCC unroll 1
  for (int u = 0; u < kUnits; ++u, out += 8 * row_stride) {
    const V32 unit = hn::BitCast(D32(), load_bytes(units + u * kVectorBytes));
    store(hn::ShiftRight<4>(unit), 0);
    store(unit, 1);
    store(hn::ShiftRight<12>(unit), 2);
    store(hn::ShiftRight<8>(unit), 3);
    store(hn::ShiftRight<20>(unit), 4);
    store(hn::ShiftRight<16>(unit), 5);
    store(hn::ShiftRight<28>(unit), 6);
    store(hn::ShiftRight<24>(unit), 7);
  }
}

// Decodes elements [k, k + count), whole blocks, of rows [row, row + kLanes) to out[i * row_stride + lane]. Rows after
// the last repeat it.
inline void decode_nf4_panel(const BlockMatrix& w, int64_t row, int64_t k, int64_t count, float* out,
                             int64_t row_stride) {
  constexpr int64_t kBytes = sizeof(BlockNf4);
  const int64_t row_bytes = w.K / BlockNf4::kElements * kBytes;
  const std::byte* blocks = w.data + k / BlockNf4::kElements * kBytes;
  alignas(64) std::byte last[kLanes * kBytes];
  for (int64_t i = 0; i < count;
       i += BlockNf4::kElements, blocks += kBytes, out += BlockNf4::kElements * row_stride) {
    const std::byte* from = blocks + row * row_bytes;
    if (row + kLanes <= w.N) {
      decode_nf4_block(from, row_bytes, out, row_stride);
      continue;
    }
    for (int64_t lane = 0; lane < kLanes; ++lane)
      std::memcpy(last + lane * kBytes, blocks + std::min(row + lane, w.N - 1) * row_bytes, kBytes);
    decode_nf4_block(last, kBytes, out, row_stride);
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
