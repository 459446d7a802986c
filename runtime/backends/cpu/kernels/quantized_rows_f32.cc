// Products of f32 activations with blocks: W is decoded to f32 tiles in cache, which micro_kernel multiplies.
#include <algorithm>

#include "runtime/backends/cpu/kernels/quantized_panels.h"
#include "runtime/backends/cpu/kernels/quantized_rows.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/quantized_rows_f32.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/quantized_unpack_nf4-inl.h"

#ifndef TSR_QUANTIZED_ROWS_F32_CC_ONCE_
#define TSR_QUANTIZED_ROWS_F32_CC_ONCE_
namespace tessera::cpu {
namespace {

constexpr int64_t kDepth = 256;        // elements of K decoded at a time
constexpr int64_t kGradientRows = 64;  // rows of W decoded at a time

struct F32Product {
  const QuantizedLayout& layout;
  PanelUnpacker unpacker;
  const BlockMatrix& w;
  const float* x;  // dy for the transposed product
  int64_t M;
  const float* bias;
  float* y;  // dx
  int64_t begin, end;
  void* scratch;
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// Decoded panels are f32, out[k * stride + lane].
HWY_INLINE void decode_unsigned_unit(V8 unit, VF scale, VF offset, VF min, float* out, int64_t stride) {
  const DF d;
  const V32 codes = hn::BitCast(D32(), unit), mask = hn::Set(D32(), 255);
  const auto store = [&](V32 code, int k) HWY_ATTR {
    const VF value = hn::Sub(hn::ConvertTo(d, hn::And(code, mask)), offset);
    hn::StoreU(hn::MulAdd(value, scale, min), d, out + k * stride);
  };
  store(codes, 0);
  store(hn::ShiftRight<8>(codes), 1);
  store(hn::ShiftRight<16>(codes), 2);
  store(hn::ShiftRight<24>(codes), 3);
}

HWY_INLINE void decode_signed_unit(const std::byte* unit, VF scale, float* out, int64_t stride) {
  const DF d;
  const auto store = [&](V32 code, int k) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::ConvertTo(d, code), scale), d, out + k * stride);
  };
  const V32 even = hn::BitCast(D32(), load_bytes(unit)),
            odd = hn::BitCast(D32(), load_bytes(unit + kVectorBytes));
  store(hn::ShiftRight<16>(hn::ShiftLeft<16>(even)), 0);
  store(hn::ShiftRight<16>(hn::ShiftLeft<16>(odd)), 1);
  store(hn::ShiftRight<16>(even), 2);
  store(hn::ShiftRight<16>(odd), 3);
}

// One unpacked block.
void decode_block(const QuantizedLayout& layout, const std::byte* block, float* out, int64_t stride) {
  const DF d;
  const VF offset = hn::Set(d, static_cast<float>(layout.offset)), zero = hn::Zero(d);
  switch (layout.form) {
    case DotForm::kUnsigned32: {
      const VF scale = load_floats(block + 8 * kVectorBytes);
      const VF min = layout.has_min ? load_floats(block + 9 * kVectorBytes) : zero;
      for (int u = 0; u < 8; ++u)
        decode_unsigned_unit(load_bytes(block + u * kVectorBytes), scale, offset, min, out + 4 * u * stride,
                             stride);
      return;
    }
    case DotForm::kSigned32:
      for (int u = 0; u < 8; ++u)
        decode_signed_unit(block + 2 * u * kVectorBytes,
                           load_floats(block + (16 + (layout.half_scales ? u / 4 : 0)) * kVectorBytes),
                           out + 4 * u * stride, stride);
      return;
    case DotForm::kUnsigned256: {
      const VF scale = load_floats(block + kScale256);
      const VF min_scale = layout.has_min ? load_floats(block + kMinScale256) : zero;
      for (int g = 0; g < 16; ++g) {
        const V32 group =
            hn::ShiftRight<16>(hn::BitCast(D32(), load_bytes(block + kScales256 + g * kVectorBytes)));
        VF min = zero;
        if (layout.has_min) {
          V32 pair = hn::BitCast(D32(), load_bytes(block + kMins256 + g / 2 * kVectorBytes));
          if (g % 2 == 0) pair = hn::ShiftLeft<16>(pair);
          min = hn::Neg(hn::Mul(min_scale, hn::ConvertTo(d, hn::ShiftRight<16>(pair))));
        }
        const VF group_scale = hn::Mul(scale, hn::ConvertTo(d, group));
        for (int u = 4 * g; u < 4 * g + 4; ++u)
          decode_unsigned_unit(load_bytes(block + u * kVectorBytes), group_scale, offset, min,
                               out + 4 * u * stride, stride);
      }
      return;
    }
    case DotForm::kSigned256: {
      const VF scale = load_floats(block + 128 * kVectorBytes);
      for (int u = 0; u < 64; ++u)
        decode_signed_unit(block + 2 * u * kVectorBytes, scale, out + 4 * u * stride, stride);
      return;
    }
    case DotForm::kWide32:
    case DotForm::kWide256:
    case DotForm::kTable64: return;  // for integer products alone; decoded from rows
  }
}

// Elements [k, k + count) of rows [row, row + kLanes).
void decode_panel(const F32Product& p, int64_t row, int64_t k, int64_t count, std::byte* unpacked, float* out,
                  int64_t stride) {
  if (p.layout.form == DotForm::kTable64) return decode_nf4_panel(p.w, row, k, count, out, stride);
  const int64_t elements = p.layout.elements(), block_bytes = unpacked_block_bytes(p.layout, kLanes);
  p.unpacker.unpack(row, k / elements, count / elements, unpacked);
  for (int64_t b = 0; b < count / elements; ++b)
    decode_block(p.layout, unpacked + b * block_bytes, out + b * elements * stride, stride);
}

// Rows [0, M) of c = a * b (c += a * b), b [depth, columns] of NV vectors.
template <int NV>
void multiply_tile(int64_t depth, const float* a, int64_t a_row, int64_t M, const float* b, int64_t ldb,
                   float* c, int64_t ldc, bool adds) {
  int64_t m = 0;
  for (; m + kMR <= M; m += kMR)
    micro_kernel<kMR, NV, false>(depth, a + m * a_row, a_row, 1, b, ldb, c + m * ldc, ldc, adds);
  for (; m < M; ++m)
    micro_kernel<1, NV, false>(depth, a + m * a_row, a_row, 1, b, ldb, c + m * ldc, ldc, adds);
}

void multiply_f32(const F32Product& p) {
  float* const panel = static_cast<float*>(p.scratch);  // [kDepth][kNR]
  auto* const unpacked = reinterpret_cast<std::byte*>(panel + kDepth * kNR);
  const int64_t N = p.w.N, K = p.w.K;
  const int64_t first = p.w.interleaved ? p.begin / kLanes * kLanes : p.begin;
  for (int64_t n = first; n < p.end; n += kNR) {
    const int64_t begin = std::max(n, p.begin), end = std::min(n + kNR, p.end);
    for (int64_t k = 0; k < K; k += kDepth) {
      const int64_t depth = std::min(kDepth, K - k);
      for (int64_t j = 0; j < kNR && n + j < end; j += kLanes)
        decode_panel(p, n + j, k, depth, unpacked, panel + j, kNR);
      if (end - begin == kNR) {
        multiply_tile<kNV>(depth, p.x + k, K, p.M, panel, kNR, p.y + n, N, k > 0);
      } else {
        for (int64_t m = 0; m < p.M; ++m) {
          alignas(64) float tile[kNR];
          micro_kernel<1, kNV, false>(depth, p.x + m * K + k, K, 1, panel, kNR, tile, kNR, false);
          float* y = p.y + m * N;
          for (int64_t i = begin; i < end; ++i) y[i] = k > 0 ? y[i] + tile[i - n] : tile[i - n];
        }
      }
    }
    if (p.bias != nullptr)
      for (int64_t m = 0; m < p.M; ++m)
        for (int64_t i = begin; i < end; ++i) p.y[m * N + i] += p.bias[i];
  }
}

void multiply_transposed(const F32Product& p) {
  float* const tile = static_cast<float*>(p.scratch);  // [kGradientRows][kDepth]
  float* const panel = tile + kGradientRows * kDepth;  // [kDepth][kLanes]
  auto* const unpacked = reinterpret_cast<std::byte*>(panel + kDepth * kLanes);
  const int64_t N = p.w.N, K = p.w.K;
  for (int64_t k = p.begin; k < p.end; k += kDepth) {
    const int64_t width = std::min(kDepth, p.end - k);
    for (int64_t n = 0; n < N; n += kGradientRows) {
      const int64_t depth = std::min(kGradientRows, N - n);
      for (int64_t j = 0; j < depth; j += kLanes) {
        decode_panel(p, n + j, k, width, unpacked, panel, kLanes);
        for (int64_t i = 0; i < width; i += kLanes)
          pack_transposed(DF(), panel + i * kLanes, kLanes, kLanes, tile + j * kDepth + i, kDepth);
      }
      int64_t i = 0;
      for (; i + kNR <= width; i += kNR)
        multiply_tile<kNV>(depth, p.x + n, N, p.M, tile + i, kDepth, p.y + k + i, K, n > 0);
      for (; i < width; i += kLanes)
        multiply_tile<1>(depth, p.x + n, N, p.M, tile + i, kDepth, p.y + k + i, K, n > 0);
    }
  }
}

int64_t f32_scratch_bytes() {
  return 4 * (kDepth * kNR + kGradientRows * kDepth + kDepth * kLanes) + kDepth / 4 * 3 * kVectorBytes;
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(multiply_f32);
HWY_EXPORT(multiply_transposed);
HWY_EXPORT(f32_scratch_bytes);

// The q8 products need more scratch than these.
int64_t block_product_scratch_bytes() {
  constexpr int64_t kUnpackedBytes = int64_t{224} << 10;
  return std::max(kUnpackedBytes, HWY_DYNAMIC_DISPATCH(f32_scratch_bytes)());
}

void multiply_blocks_f32(const BlockMatrix& w, const float* x, int64_t M, const float* bias, float* y,
                         int64_t n_begin, int64_t n_end, void* scratch) {
  const QuantizedLayout& layout = quantized_layout(w.type);
  HWY_DYNAMIC_DISPATCH(multiply_f32)
  ({layout, PanelUnpacker(layout, w), w, x, M, bias, y, n_begin, n_end, scratch});
}

void multiply_blocks_transposed(const BlockMatrix& w, const float* dy, int64_t M, float* dx, int64_t k_begin,
                                int64_t k_end, void* scratch) {
  const QuantizedLayout& layout = quantized_layout(w.type);
  HWY_DYNAMIC_DISPATCH(multiply_transposed)
  ({layout, PanelUnpacker(layout, w), w, dy, M, nullptr, dx, k_begin, k_end, scratch});
}

}  // namespace tessera::cpu
#endif
