// Products with quantised activations. Two threads of a Zen 3 (AVX2), W [24576, 4096], plain reads at 20.9
// GB/s, f32 Gemm at 160 GFLOP/s; bench: bench_quantized --threads 2
//   1 row      17 to 22.5 GB/s of W, interleaved, for every type with a vector unpacker; 11 to 20 in the
//              file's layout
//   512 rows   q4_0 399, q4_k 347, q6_k 348, q8_0 234, iq4_xs 216 GFLOP/s. Registers alone allow 708 with
//              sums of 16 bits, 346 with products of words (q8_0, iq4_nl, iq4_xs)
#include "runtime/backends/cpu/kernels/quantized_rows.h"

#include <algorithm>

#include "graph/base/status.h"
#include "runtime/backends/cpu/kernels/quantized_gemv.h"
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

constexpr int64_t kFewRows = 8;
constexpr int64_t kFewBytes = int64_t{16} << 10;     // of two unpacked panels, for few rows: in L1
constexpr int64_t kPairBytes = int64_t{36} << 10;    // of two panels, for many rows: in L1, or near
constexpr int64_t kStripBytes = int64_t{160} << 10;  // of all panels that kRowBlock rows meet: in L2
constexpr int64_t kRowBlock = 16;

struct Q8Product {
  const QuantizedLayout& layout;
  PanelUnpacker unpacker;
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

// The layout that products with activations of 8 bits unpack a type to.
const QuantizedLayout* product_layout(DType type) {
  return has_wide_forms() ? &wide_quantized_layout(type) : &quantized_layout(type);
}

void quantize_row(const QuantizedLayout& layout, const float* x, int64_t K, std::byte* out) {
  const int64_t block_bytes = activation_block_bytes(layout);
  for (int64_t k = 0; k < K; k += layout.elements(), out += block_bytes)
    quantize_activation_block(layout, x + k, out);
}

using DotFunction = void(const DotOperands&);

template <class Products, int kRows>
DotFunction* dot_function(const QuantizedLayout& layout) {
  switch (layout.form) {
    case DotForm::kUnsigned32:
      return layout.has_min ? dot_unsigned_32<Products, false, true, kRows>
                            : dot_unsigned_32<Products, true, false, kRows>;
    case DotForm::kSigned32:
      return layout.half_scales ? dot_signed_32<Products, 2, kRows> : dot_signed_32<Products, 1, kRows>;
    case DotForm::kUnsigned256:
      return layout.has_min ? dot_unsigned_256<Products, false, true, kRows>
                            : dot_unsigned_256<Products, true, false, kRows>;
    case DotForm::kSigned256: return dot_signed_256<Products, kRows>;
    case DotForm::kWide32: return dot_unsigned_32<VnniSums, true, false, kRows>;
    case DotForm::kWide256: return dot_unsigned_256<VnniSums, true, false, kRows>;
    case DotForm::kTable64: break;
  }
  return nullptr;
}

// Dot products for four rows, two and one. Few rows wait for memory; four are worth the widest instructions.
struct DotFunctions {
  DotFunction *four, *two, *one;
  explicit DotFunctions(const QuantizedLayout& layout)
      : four(dot_function<PlainSums, 4>(layout)),
        two(dot_function<PlainSums, 2>(layout)),
        one(dot_function<PlainSums, 1>(layout)) {
#if TSR_QUANTIZED_VNNI || TSR_EMULATE_VNNI
    if (has_vnni()) four = dot_function<VnniSums, 4>(layout);
#endif
  }
};

inline constexpr int64_t kPairLanes = 2 * kLanes;

// Adds products of `rows` rows with two panels to sums [rows][kPairLanes].
void add_products(const DotFunctions& dots, DotOperands operands, int64_t rows) {
  for (; rows >= 4; rows -= 4, operands.x += 4 * operands.x_stride, operands.sums += 4 * kPairLanes)
    dots.four(operands);
  if (rows >= 2) {
    dots.two(operands);
    rows -= 2, operands.x += 2 * operands.x_stride, operands.sums += 2 * kPairLanes;
  }
  if (rows > 0) dots.one(operands);
}

// Sums of rows [m, m + rows) and columns [n, n + kPairLanes) from y, or to y; columns outside the range are
// neither read nor written.
void load_sums(const Q8Product& p, int64_t m, int64_t rows, int64_t n, float* sums) {
  const int64_t begin = std::max(p.n_begin, n), end = std::min(p.n_end, n + kPairLanes);
  for (int64_t r = 0; r < rows; ++r) {
    const float* y = p.y + (m + r) * p.w.N;
    if (end - begin == kPairLanes) {
      hn::Store(hn::LoadU(DF(), y + n), DF(), sums + r * kPairLanes);
      hn::Store(hn::LoadU(DF(), y + n + kLanes), DF(), sums + r * kPairLanes + kLanes);
    } else {
      std::fill_n(sums + r * kPairLanes, kPairLanes, 0.0f);
      std::copy(y + begin, y + end, sums + r * kPairLanes + (begin - n));
    }
  }
}

void store_sums(const Q8Product& p, int64_t m, int64_t rows, int64_t n, bool last, const float* sums) {
  const int64_t begin = std::max(p.n_begin, n), end = std::min(p.n_end, n + kPairLanes);
  const float* bias = last ? p.bias : nullptr;
  for (int64_t r = 0; r < rows; ++r) {
    float* y = p.y + (m + r) * p.w.N;
    if (end - begin == kPairLanes) {
      for (int64_t i = 0; i < kPairLanes; i += kLanes) {
        const VF sum = hn::Load(DF(), sums + r * kPairLanes + i);
        hn::StoreU(bias == nullptr ? sum : hn::Add(sum, hn::LoadU(DF(), bias + n + i)), DF(), y + n + i);
      }
    } else {
      for (int64_t i = begin; i < end; ++i)
        y[i] = sums[r * kPairLanes + i - n] + (bias == nullptr ? 0.0f : bias[i]);
    }
  }
}

// One row, whole panels from `n` on; returns where it ended.
int64_t multiply_one(const Q8Product& p, int64_t n) {
  DotPanel* dot_panel = find_dot_panel(p.layout);
  if (dot_panel == nullptr) return n;
  const int64_t stride = p.w.interleaved ? 0 : dtype_bytes(p.w.type, p.w.K);
  const int64_t block_count = p.w.K / p.layout.elements();
  for (; n < p.n_end && n + kLanes <= p.w.N; n += kLanes) {
    alignas(64) float sums[kLanes];
    const std::byte* next = n + kLanes < p.n_end ? p.unpacker.find_block(n + kLanes, 0) : nullptr;
    dot_panel(p.unpacker.find_block(n, 0), stride, block_count, p.x, sums, next);
    for (int64_t i = std::max(n, p.n_begin); i < std::min(n + kLanes, p.n_end); ++i)
      p.y[i] = sums[i - n] + (p.bias == nullptr ? 0.0f : p.bias[i]);
  }
  return n;
}

// Up to kFewRows rows: a pair of panels passes through L1 once. While a part of it is multiplied, the next is
// fetched.
void multiply_few(const Q8Product& p, int64_t n_first) {
  const int64_t block_bytes = p.unpacker.block_bytes(), x_bytes = activation_block_bytes(p.layout);
  const int64_t block_count = p.w.K / p.layout.elements(), unit = 256 / p.layout.elements();
  const int64_t chunk = std::max(kFewBytes / (2 * block_bytes) / unit, int64_t{1}) * unit;
  const DotFunctions dots(p.layout);
  alignas(64) float sums[kFewRows * kPairLanes];
  for (int64_t n = n_first; n < p.n_end; n += kPairLanes) {
    std::fill_n(sums, p.M * kPairLanes, 0.0f);
    for (int64_t block = 0; block < block_count; block += chunk) {
      const int64_t count = std::min(chunk, block_count - block);
      for (int64_t i = 0; i < 2; ++i) {
        const int64_t row = n + i * kLanes, next_row = row + kPairLanes;
        const std::byte* next = block + chunk < block_count ? p.unpacker.find_block(row, block + chunk)
                                : next_row < p.n_end        ? p.unpacker.find_block(next_row, 0)
                                                            : nullptr;
        p.unpacker.unpack(row, block, count, p.scratch + i * count * block_bytes, next);
      }
      add_products(dots,
                   {.block_count = count,
                    .panels = p.scratch,
                    .stride = count * block_bytes,
                    .x = p.x + block * x_bytes,
                    .x_stride = p.x_stride,
                    .sums = sums},
                   p.M);
    }
    store_sums(p, 0, p.M, n, true, sums);
  }
}

// More rows: a strip of panels is unpacked into L2, a part of K at a time. kRowBlock rows of x pass each pair
// of panels while it is in L1.
void multiply_many(const Q8Product& p, int64_t n_first) {
  const int64_t block_bytes = p.unpacker.block_bytes(), x_bytes = activation_block_bytes(p.layout);
  const int64_t block_count = p.w.K / p.layout.elements(), unit = 256 / p.layout.elements();
  const int64_t chunk = std::max(kPairBytes / (2 * block_bytes) / unit, int64_t{1}) * unit;
  const int64_t strip_rows = kStripBytes / (chunk * block_bytes) / 2 * kPairLanes;
  const DotFunctions dots(p.layout);
  alignas(64) float sums[kRowBlock * kPairLanes];
  for (int64_t strip = n_first; strip < p.n_end; strip += strip_rows) {
    const int64_t strip_end = std::min(p.n_end, strip + strip_rows);
    for (int64_t block = 0; block < block_count; block += chunk) {
      const int64_t count = std::min(chunk, block_count - block), panel_bytes = count * block_bytes;
      for (int64_t n = strip, i = 0; n < strip_end; n += kLanes, ++i)
        p.unpacker.unpack(n, block, count, p.scratch + i * panel_bytes);
      for (int64_t m = 0; m < p.M; m += kRowBlock) {
        const int64_t rows = std::min(kRowBlock, p.M - m);
        for (int64_t n = strip, i = 0; n < strip_end; n += kPairLanes, i += 2) {
          if (block == 0) {
            std::fill_n(sums, rows * kPairLanes, 0.0f);
          } else {
            load_sums(p, m, rows, n, sums);
          }
          add_products(dots,
                       {.block_count = count,
                        .panels = p.scratch + i * panel_bytes,
                        .stride = panel_bytes,
                        .x = p.x + m * p.x_stride + block * x_bytes,
                        .x_stride = p.x_stride,
                        .sums = sums},
                       rows);
          store_sums(p, m, rows, n, block + count == block_count, sums);
        }
      }
    }
  }
}

void multiply_q8(const Q8Product& p) {
  int64_t n_first = p.w.interleaved ? p.n_begin / kLanes * kLanes : p.n_begin;
  if (p.M == 1) n_first = multiply_one(p, n_first);
  return p.M <= kFewRows ? multiply_few(p, n_first) : multiply_many(p, n_first);
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(product_layout);
HWY_EXPORT(quantize_row);
HWY_EXPORT(multiply_q8);

namespace {

const QuantizedLayout& product_layout_of(DType type) {
  TSR_CHECK(has_integer_codes(type), "products with activations of 8 bits: the type has no integer codes");
  return *HWY_DYNAMIC_DISPATCH(product_layout)(type);
}

}  // namespace

int64_t quantized_row_bytes(DType type, int64_t K) {
  const QuantizedLayout& layout = product_layout_of(type);
  return K / layout.elements() * activation_block_bytes(layout);
}

void quantize_rows(DType type, const float* x, int64_t M, int64_t K, std::byte* out) {
  const QuantizedLayout& layout = product_layout_of(type);
  const int64_t row_bytes = quantized_row_bytes(type, K);
  for (int64_t m = 0; m < M; ++m)
    HWY_DYNAMIC_DISPATCH(quantize_row)(layout, x + m * K, K, out + m * row_bytes);
}

void multiply_blocks_q8(const BlockMatrix& w, const std::byte* x, int64_t M, const float* bias, float* y,
                        int64_t n_begin, int64_t n_end, void* scratch) {
  const QuantizedLayout& layout = product_layout_of(w.type);
  HWY_DYNAMIC_DISPATCH(multiply_q8)
  ({.layout = layout,
    .unpacker = PanelUnpacker(layout, w),
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
