#include "runtime/backends/cpu/kernels/quantized_rows.h"

#include <algorithm>

#include "runtime/backends/cpu/kernels/quantized_panels.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/quantized_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/quantized_activations-inl.h"
#include "runtime/backends/cpu/kernels/quantized_dot_32-inl.h"
#include "runtime/backends/cpu/kernels/quantized_dot_k-inl.h"

#ifndef TSR_QUANTIZED_ROWS_CC_ONCE_
#define TSR_QUANTIZED_ROWS_CC_ONCE_
namespace tessera::cpu {
namespace {

constexpr int64_t kUnpackedBytes = int64_t{192} << 10;  // of panels at a time: in L2, with activations
constexpr int64_t kFewBytes = int64_t{8} << 10;         // for few rows: in L1
constexpr int64_t kFewRows = 4;

struct Q8Product {
  const QuantizedLayout& layout;
  const BlockMatrix& w;
  const std::byte* x;
  int64_t x_stride;
  int64_t M;
  const float* bias;
  float* y;
  int64_t n_begin, n_end;
  std::byte* scratch;
};

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

void quantize_row(const QuantizedLayout& layout, const float* x, int64_t K, std::byte* out) {
  const int64_t block_bytes = activation_block_bytes(layout);
  for (int64_t k = 0; k < K; k += layout.elements(), out += block_bytes)
    quantize_activation_block(layout, x + k, out);
}

template <int kRows>
using DotFunction = void (*)(const DotOperands&);

template <int kRows>
DotFunction<kRows> dot_function(const QuantizedLayout& layout) {
  switch (layout.form) {
    case DotForm::kUnsigned32:
      return layout.has_min ? dot_unsigned_32<false, true, kRows> : dot_unsigned_32<true, false, kRows>;
    case DotForm::kSigned32: return layout.half_scales ? dot_signed_32<2, kRows> : dot_signed_32<1, kRows>;
    case DotForm::kUnsigned256:
      return layout.has_min ? dot_unsigned_256<false, true, kRows> : dot_unsigned_256<true, false, kRows>;
    case DotForm::kSigned256: return dot_signed_256<kRows>;
  }
  return nullptr;
}

// Sums of kRows rows and two panels: from y (or zero) to y (with bias). Columns outside the range are not
// touched.
template <int kRows>
void run_tile(const Q8Product& p, DotFunction<kRows> dot, DotOperands operands, int64_t m, int64_t n,
              bool first, bool last) {
  constexpr int64_t kWidth = 2 * kLanes;
  alignas(64) float sums[kRows * kWidth];
  operands.sums = sums;
  const int64_t begin = std::max(p.n_begin, n), end = std::min(p.n_end, n + kWidth);
  const bool whole = begin == n && end == n + kWidth;
  if (first || !whole) std::fill_n(sums, kRows * kWidth, 0.0f);
  if (!first)
    for (int r = 0; r < kRows; ++r)
      std::copy(p.y + (m + r) * p.w.N + begin, p.y + (m + r) * p.w.N + end, sums + r * kWidth + (begin - n));
  dot(operands);
  for (int r = 0; r < kRows; ++r) {
    float* y = p.y + (m + r) * p.w.N;
    if (last && p.bias != nullptr)
      for (int64_t i = begin; i < end; ++i) sums[r * kWidth + i - n] += p.bias[i];
    std::copy(sums + r * kWidth + (begin - n), sums + r * kWidth + (end - n), y + begin);
  }
}

void multiply_q8(const Q8Product& p) {
  const QuantizedLayout& layout = p.layout;
  const int64_t block_bytes = unpacked_block_bytes(layout, kLanes), x_bytes = activation_block_bytes(layout);
  const int64_t block_count = p.w.K / layout.elements();
  // Blocks and panels unpacked at a time; chunks begin at multiples of 256 elements.
  const int64_t unit = 256 / layout.elements();
  const int64_t most_blocks = p.M <= kFewRows ? kFewBytes / (2 * block_bytes) / unit * unit : 8 * unit;
  const int64_t chunk = std::clamp(most_blocks, unit, std::max(unit, block_count));
  const int64_t panels =
      p.M <= kFewRows ? 2 : std::max<int64_t>(2, kUnpackedBytes / (chunk * block_bytes) / 2 * 2);
  const auto dot4 = dot_function<4>(layout);
  const auto dot2 = dot_function<2>(layout);
  const auto dot1 = dot_function<1>(layout);
  const int64_t n_first = p.w.interleaved ? p.n_begin / kLanes * kLanes : p.n_begin;
  for (int64_t strip = n_first; strip < p.n_end; strip += panels * kLanes) {
    const int64_t strip_end = std::min(p.n_end, strip + panels * kLanes);
    for (int64_t block = 0; block < block_count; block += chunk) {
      const int64_t count = std::min(chunk, block_count - block);
      const bool first = block == 0, last = block + count == block_count;
      for (int64_t n = strip, i = 0; n < strip_end; n += kLanes, ++i)
        unpack_panel(layout, p.w, n, block, count, p.scratch + i * count * block_bytes);
      for (int64_t m = 0; m < p.M;) {
        const int64_t rows = p.M - m >= 4 ? 4 : p.M - m >= 2 ? 2 : 1;
        DotOperands operands{.block_count = count,
                             .panels = p.scratch,
                             .stride = count * block_bytes,
                             .x = p.x + m * p.x_stride + block * x_bytes,
                             .x_stride = p.x_stride,
                             .sums = nullptr};
        for (int64_t n = strip; n < strip_end; n += 2 * kLanes, operands.panels += 2 * operands.stride) {
          if (rows == 4) run_tile<4>(p, dot4, operands, m, n, first, last);
          if (rows == 2) run_tile<2>(p, dot2, operands, m, n, first, last);
          if (rows == 1) run_tile<1>(p, dot1, operands, m, n, first, last);
        }
        m += rows;
      }
    }
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(quantize_row);
HWY_EXPORT(multiply_q8);

int64_t quantized_row_bytes(DType type, int64_t K) {
  const QuantizedLayout& layout = quantized_layout(type);
  return K / layout.elements() * activation_block_bytes(layout);
}

int quantized_row_layout(DType type) {
  const QuantizedLayout& layout = quantized_layout(type);
  return static_cast<int>(layout.form) * 64 + layout.offset;
}

void quantize_rows(DType type, const float* x, int64_t M, int64_t K, std::byte* out) {
  const QuantizedLayout& layout = quantized_layout(type);
  const int64_t row_bytes = quantized_row_bytes(type, K);
  for (int64_t m = 0; m < M; ++m)
    HWY_DYNAMIC_DISPATCH(quantize_row)(layout, x + m * K, K, out + m * row_bytes);
}

void multiply_blocks_q8(const BlockMatrix& w, const std::byte* x, int64_t M, const float* bias, float* y,
                        int64_t n_begin, int64_t n_end, void* scratch) {
  HWY_DYNAMIC_DISPATCH(multiply_q8)
  ({.layout = quantized_layout(w.type),
    .w = w,
    .x = x,
    .x_stride = quantized_row_bytes(w.type, w.K),
    .M = M,
    .bias = bias,
    .y = y,
    .n_begin = n_begin,
    .n_end = n_end,
    .scratch = static_cast<std::byte*>(scratch)});
}

}  // namespace tessera::cpu
#endif
