// quantized_matmul_grad in f32, of weights in 16 bits: the weight is widened a strip at a time and multiplied
// by the packed Gemm.
#include <algorithm>

#include "runtime/backends/cpu/kernels/gemm.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/quantized_weight.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kStripFloats = int64_t{1} << 20;  // 4 MiB: half of an L3 that two ranks share
constexpr int64_t kDecodeGrain = 16;                // rows of the weight a task

Status check_f32(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(simd_supported());
  if (spec.input_dtype(0) == DType::kF32) return {};
  return Status(StatusCode::kUnsupported,
                format("dtype {}: this kernel computes in f32", to_text(spec.input_dtype(0))));
}

double flops_of(const QuantizedMatmulShape& s) {
  return 2.0 * static_cast<double>(s.M) * static_cast<double>(s.N) * static_cast<double>(s.K);
}

// The parts of a product whose weight is decoded in strips of `width` of its `whole` rows or columns: the
// strip, the strip's part of the result, then the workspace of the Gemm.
struct Strips {
  int64_t width = 0, whole = 0, depth = 0, rows = 0;  // depth: the extent that is summed over; rows: M

  int64_t count(int64_t at) const { return std::min(width, whole - at); }
  int64_t strip_floats() const { return (width * depth + 15) / 16 * 16; }
  int64_t part_floats() const { return (width * rows + 15) / 16 * 16; }
  template <class GemmOf>
  int64_t workspace_bytes(GemmOf&& gemm_of) const {
    int64_t gemm_bytes = gemm_workspace_bytes(gemm_of(width));
    if (whole % width > 0) gemm_bytes = std::max(gemm_bytes, gemm_workspace_bytes(gemm_of(whole % width)));
    return 4 * (strip_floats() + part_floats()) + gemm_bytes;
  }
};

void copy_columns(const float* part, int64_t rows, int64_t count, float* to, int64_t stride) {
  for (int64_t m = 0; m < rows; ++m) std::copy_n(part + m * count, count, to + m * stride);
}

}  // namespace

// dy [M, N], w [N, K] -> dx [M, K]
Result<PreparedKernel> prepare_quantized_matmul_grad_strips(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(check_f32(spec));
  const QuantizedMatmulShape s = quantized_matmul_grad_shape(spec);
  if (s.K == 0 || s.N == 0) return Status(StatusCode::kUnsupported, "an empty weight");
  constexpr int64_t kColumns = 256;
  const Strips strips{.width = std::min(s.K, std::max(kColumns, kStripFloats / s.N / kColumns * kColumns)),
                      .whole = s.K,
                      .depth = s.N,
                      .rows = s.M};
  const auto gemm_of = [s](int64_t columns) {
    return Gemm{.m = s.M, .n = columns, .k = s.N, .a_row = s.N, .a_col = 1, .b_row = columns, .b_col = 1};
  };
  auto launch = [=](const LaunchArgs& args) {
    auto* strip = static_cast<float*>(args.workspace);
    float* part = strip + strips.strip_floats();
    for (int64_t k0 = 0; k0 < s.K; k0 += strips.width) {
      const int64_t count = strips.count(k0);
      args.pool.parallel_ranges(s.N, kDecodeGrain, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n)
          decode_weight(s, args.inputs[1], n, k0, count, strip + n * count);
      });
      run_gemm(gemm_of(count),
               {.a = args.in<float>(0), .b = strip, .c = part, .workspace = part + strips.part_floats()},
               args.pool);
      copy_columns(part, s.M, count, args.out<float>(0) + k0, s.K);
    }
  };
  PreparedKernel prepared =
      simd_prepared(spec, flops_of(s), make_kernel(launch), strips.workspace_bytes(gemm_of));
  prepared.efficiency = 0.5;
  return prepared;
}

}  // namespace tessera::cpu
