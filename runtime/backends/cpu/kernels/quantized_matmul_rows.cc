// quantized_matmul in f32, of weights in 16 bits. Up to 8 rows of x: dot products with each row of the weight,
// widened in registers as it is read. More rows: the weight is widened a strip at a time and multiplied by the
// packed Gemm.
#include <algorithm>

#include "runtime/backends/cpu/kernels/gemm.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/quantized_weight.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/backends/cpu/kernels/quantized_matmul_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/backends/cpu/kernels/rows-inl.h"

#ifndef TSR_NARROW_MATMUL_ROWS_ONCE_
#define TSR_NARROW_MATMUL_ROWS_ONCE_
namespace tessera::cpu {
namespace {

constexpr int64_t kUnit = 32;  // numbers widened at a time

struct QuantizedMatmulBuffers {
  const float* x;
  const uint8_t* w;
  const float* bias;      // null for none
  float* y;
};

float last_number(const QuantizedMatmulShape& s, const uint8_t* w, int64_t n, int64_t k) {
  float number;
  decode_weight(s, w, n, k, 1, &number);
  return number;
}

}  // namespace
}  // namespace tessera::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {

// The loops over vectors are unrolled by name: at -O2 GCC 12 else keeps the vectors in memory.
inline constexpr int64_t kSteps = kUnit / kRowLanes;  // vectors that hold a unit

// Reads numbers [k, k + 32) of a row, in order.
struct Bf16Row {
  static HWY_INLINE void widen(const uint8_t* row, int64_t k, VR* out) {
    const hn::Rebind<uint16_t, DR> d16;
    const hn::Rebind<uint32_t, DR> d32;
    const auto* at = reinterpret_cast<const uint16_t*>(row) + k;
#pragma GCC unroll 16
    for (int64_t i = 0; i < kSteps; ++i)
      out[i] = hn::BitCast(DR(), hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, at + i * kRowLanes))));
  }
};
struct F16Row {
  static HWY_INLINE void widen(const uint8_t* row, int64_t k, VR* out) {
    const hn::Rebind<hwy::float16_t, DR> d16;
    const auto* at = reinterpret_cast<const hwy::float16_t*>(row) + k;
#pragma GCC unroll 16
    for (int64_t i = 0; i < kSteps; ++i) out[i] = hn::PromoteTo(DR(), hn::LoadU(d16, at + i * kRowLanes));
  }
};

// kRows rows of x with kColumns rows of the weight from n on. The numbers after the last whole unit of a row
// are summed one by one.
template <class Row, int kRows, int kColumns>
HWY_INLINE void dots(const QuantizedMatmulShape& s, const QuantizedMatmulBuffers& b, int64_t m, int64_t n) {
  const DR d;
  const int64_t row_bytes = s.row_bytes(), whole = s.K / kUnit * kUnit;
  VR part[kColumns][kRows][2];
#pragma GCC unroll 16
  for (int c = 0; c < kColumns; ++c)
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) part[c][r][0] = part[c][r][1] = hn::Zero(d);
  for (int64_t k = 0; k < whole; k += kUnit)
#pragma GCC unroll 16
    for (int c = 0; c < kColumns; ++c) {
      VR weight[kSteps];
      Row::widen(b.w + (n + c) * row_bytes, k, weight);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 16
        for (int64_t i = 0; i < kSteps; ++i)
          part[c][r][i % 2] =
              hn::MulAdd(weight[i], hn::LoadU(d, b.x + (m + r) * s.K + k + i * kRowLanes), part[c][r][i % 2]);
    }
#pragma GCC unroll 16
  for (int c = 0; c < kColumns; ++c)
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(part[c][r][0], part[c][r][1])));
      for (int64_t k = whole; k < s.K; ++k) sum += last_number(s, b.w, n + c, k) * b.x[(m + r) * s.K + k];
      if (b.bias != nullptr) sum += b.bias[n + c];
      b.y[(m + r) * s.N + n + c] = sum;
    }
}

template <class Row, int kRows>
void columns(const QuantizedMatmulShape& s, const QuantizedMatmulBuffers& b, int64_t m, int64_t begin,
             int64_t end) {
  constexpr int kAtOnce = kRows == 1 ? 2 : 1;
  int64_t n = begin;
  for (; n + kAtOnce <= end; n += kAtOnce) dots<Row, kRows, kAtOnce>(s, b, m, n);
  for (; n < end; ++n) dots<Row, kRows, 1>(s, b, m, n);
}

template <class Row>
void all_rows(const QuantizedMatmulShape& s, const QuantizedMatmulBuffers& b, int64_t begin, int64_t end) {
  int64_t m = 0;
  for (; m + 4 <= s.M; m += 4) columns<Row, 4>(s, b, m, begin, end);
  for (; m + 2 <= s.M; m += 2) columns<Row, 2>(s, b, m, begin, end);
  for (; m < s.M; ++m) columns<Row, 1>(s, b, m, begin, end);
}

// Computes y[:, begin..end).
void quantized_dots(const QuantizedMatmulShape& s, const QuantizedMatmulBuffers& b, int64_t begin,
                    int64_t end) {
  if (s.dtype == DType::kBF16) return all_rows<Bf16Row>(s, b, begin, end);
  all_rows<F16Row>(s, b, begin, end);
}

template <class Row>
void widen_row(const QuantizedMatmulShape& s, const QuantizedMatmulBuffers& b, int64_t n, float* out) {
  const DR d;
  const int64_t whole = s.K / kUnit * kUnit;
  for (int64_t k = 0; k < whole; k += kUnit) {
    VR weight[kSteps];
    Row::widen(b.w + n * s.row_bytes(), k, weight);
    for (int64_t i = 0; i < kSteps; ++i) hn::StoreU(weight[i], d, out + k + i * kRowLanes);
  }
  for (int64_t k = whole; k < s.K; ++k) out[k] = last_number(s, b.w, n, k);
}

// Widens rows [begin, end) of the weight to floats, consecutive in `out`.
void widen_rows(const QuantizedMatmulShape& s, const QuantizedMatmulBuffers& b, int64_t begin, int64_t end,
                float* out) {
  for (int64_t n = begin; n < end; ++n, out += s.K) {
    if (s.dtype == DType::kBF16)
      widen_row<Bf16Row>(s, b, n, out);
    else
      widen_row<F16Row>(s, b, n, out);
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

HWY_EXPORT(quantized_dots);
HWY_EXPORT(widen_rows);

namespace {

constexpr int64_t kFewRows = 8;

QuantizedMatmulBuffers buffers_of(const QuantizedMatmulShape& shape, const LaunchArgs& args) {
  return {.x = args.in<float>(0),
          .w = args.in<uint8_t>(1),
          .bias = shape.bias < 0 ? nullptr : args.in<float>(shape.bias),
          .y = args.out<float>(0)};
}

// Strips: pieces of the weight that are widened, then multiplied.
struct Strips {
  int64_t columns;  // of y in a strip, except the last
  explicit Strips(const QuantizedMatmulShape& s) {
    constexpr int64_t kFloats = int64_t{1} << 20;  // 4 MiB: half of an L3 that two ranks share
    columns =
        std::clamp<int64_t>(kFloats / std::max<int64_t>(s.K, 1) / 48 * 48, 48, std::max<int64_t>(s.N, 1));
  }
  static Gemm gemm(const QuantizedMatmulShape& s, int64_t columns) {
    return {.m = s.M, .n = columns, .k = s.K, .a_row = s.K, .a_col = 1, .b_row = 1, .b_col = s.K};
  }
  int64_t floats(const QuantizedMatmulShape& s) const { return (columns * (s.K + s.M) + 15) / 16 * 16; }
  int64_t workspace_bytes(const QuantizedMatmulShape& s) const {
    const int64_t last = s.N % columns;
    int64_t gemm_bytes = gemm_workspace_bytes(gemm(s, columns));
    if (last > 0) gemm_bytes = std::max(gemm_bytes, gemm_workspace_bytes(gemm(s, last)));
    return 4 * floats(s) + gemm_bytes;
  }
};

void run_strips(const QuantizedMatmulShape& s, const Strips& strips, const LaunchArgs& args) {
  const QuantizedMatmulBuffers b = buffers_of(s, args);
  auto* strip = static_cast<float*>(args.workspace);
  for (int64_t n0 = 0; n0 < s.N; n0 += strips.columns) {
    const int64_t count = std::min(strips.columns, s.N - n0);
    float* product = strip + strips.columns * s.K;
    args.pool.parallel_ranges(count, 16, [&](int64_t begin, int64_t end) {
      HWY_DYNAMIC_DISPATCH(widen_rows)(s, b, n0 + begin, n0 + end, strip + begin * s.K);
    });
    run_gemm(Strips::gemm(s, count),
             {.a = b.x,
              .b = strip,
              .bias = b.bias == nullptr ? nullptr : b.bias + n0,
              .c = product,
              .workspace = static_cast<float*>(args.workspace) + strips.floats(s)},
             args.pool);
    for (int64_t m = 0; m < s.M; ++m) std::copy_n(product + m * count, count, b.y + m * s.N + n0);
  }
}

}  // namespace

// x [M, K], w [N, K], bias [N] -> y [M, N]
Result<PreparedKernel> prepare_quantized_matmul_rows(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(simd_supported());
  if (spec.input_dtype(0) != DType::kF32)
    return Status(StatusCode::kUnsupported,
                  format("dtype {}: this kernel computes in f32", to_text(spec.input_dtype(0))));
  const QuantizedMatmulShape shape = quantized_matmul_shape(spec);
  if (!is_half_type(shape.dtype))
    return Status(StatusCode::kUnsupported, format("weight {}: wanted 16 bits", to_text(shape.dtype)));
  if (shape.K == 0) return Status(StatusCode::kUnsupported, "an empty weight");
  if (shape.M > kFewRows) {
    const Strips strips(shape);
    PreparedKernel prepared = simd_prepared(
        spec, shape.flops(), make_kernel([=](const LaunchArgs& args) { run_strips(shape, strips, args); }),
        strips.workspace_bytes(shape));
    prepared.efficiency = 0.7;
    return prepared;
  }
  // 64 KiB of the weight a task: enough to hand out, and in the cache for every row of x.
  const int64_t grain = std::max<int64_t>(4, (int64_t{64} << 10) / shape.row_bytes());
  return simd_prepared(spec, shape.flops(), make_kernel([=](const LaunchArgs& args) {
                         const QuantizedMatmulBuffers b = buffers_of(shape, args);
                         args.pool.parallel_ranges(shape.N, grain, [&](int64_t begin, int64_t end) {
                           HWY_DYNAMIC_DISPATCH(quantized_dots)(shape, b, begin, end);
                         });
                       }));
}

}  // namespace tessera::cpu
#endif
