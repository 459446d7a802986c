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

// Columns of the weight that are widened at a time, [N, width], then their part of dx, [M, width], then the
// workspace of the Gemm.
struct Strips {
  QuantizedMatmulShape shape;
  int64_t width = 0;

  int64_t strip_floats() const { return (width * shape.N + 15) / 16 * 16; }
  int64_t part_floats() const { return (width * shape.M + 15) / 16 * 16; }
  Gemm gemm(int64_t columns) const {
    return {
        .m = shape.M, .n = columns, .k = shape.N, .a_row = shape.N, .a_col = 1, .b_row = columns, .b_col = 1};
  }
  int64_t workspace_bytes() const {
    int64_t gemm_bytes = gemm_workspace_bytes(gemm(width));
    if (shape.K % width > 0) gemm_bytes = std::max(gemm_bytes, gemm_workspace_bytes(gemm(shape.K % width)));
    return 4 * (strip_floats() + part_floats()) + gemm_bytes;
  }
};

}  // namespace

// dy [M, N], w [N, K] -> dx [M, K]
Result<PreparedKernel> prepare_quantized_matmul_grad_strips(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(check_f32(spec));
  const QuantizedMatmulShape s = quantized_matmul_grad_shape(spec);
  if (s.K == 0 || s.N == 0) return Status(StatusCode::kUnsupported, "an empty weight");
  constexpr int64_t kColumns = 256;
  const Strips strips{s, std::min(s.K, std::max(kColumns, kStripFloats / s.N / kColumns * kColumns))};
  auto launch = [s, strips](const LaunchArgs& args) {
    auto* strip = static_cast<float*>(args.workspace);
    float* part = strip + strips.strip_floats();
    for (int64_t k0 = 0; k0 < s.K; k0 += strips.width) {
      const int64_t count = std::min(strips.width, s.K - k0);
      args.pool.parallel_ranges(s.N, kDecodeGrain, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n)
          decode_weight(s, args.inputs[1], n, k0, count, strip + n * count);
      });
      run_gemm(strips.gemm(count),
               {.a = args.in<float>(0), .b = strip, .c = part, .workspace = part + strips.part_floats()},
               args.pool);
      for (int64_t m = 0; m < s.M; ++m)
        std::copy_n(part + m * count, count, args.out<float>(0) + m * s.K + k0);
    }
  };
  PreparedKernel prepared = simd_prepared(spec, s.flops(), make_kernel(launch), strips.workspace_bytes());
  prepared.efficiency = 0.5;
  return prepared;
}

}  // namespace tessera::cpu
