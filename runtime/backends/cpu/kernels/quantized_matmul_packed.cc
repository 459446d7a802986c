// quantized_matmul and its gradient of weights in 16 bits. Up to 8 rows of x in f32: Gemv16, as fast as the weight is
// read. More rows: the packed Gemm, which widens the weight as it packs it. x and weight in bf16: Bf16Gemm.
//  AMD EPYC (Zen 5), one thread: one row reads 80 to 90 % of what plain reads reach (33 GB/s of 39); 128 and 512 rows
//  take 200 to 230 GFLOP/s, as in f32, of 270; in bf16 380 to 450, of 540.
#include <algorithm>

#include "runtime/backends/cpu/kernels/gemm.h"
#include "runtime/backends/cpu/kernels/gemm_bf16.h"
#include "runtime/backends/cpu/kernels/gemv_16.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/quantized_weight.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kTaskBytes = int64_t{64} << 10;  // of the weight: enough to hand out

Status check_16_bits(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(simd_supported());
  const DType x = spec.input_dtype(0), w = spec.input_dtype(1);
  if (w != DType::kBF16 && w != DType::kF16)
    return Status(StatusCode::kUnsupported, format("weight {}: wanted 16 bits", to_text(w)));
  if (x == DType::kF32 || (x == DType::kBF16 && w == DType::kBF16)) return {};
  return Status(StatusCode::kUnsupported,
                format("dtype {} with weights in {}: this kernel computes in f32, or all in bf16", to_text(x),
                       to_text(w)));
}

PreparedKernel prepare_gemv(const KernelSpec& spec, const QuantizedMatmulShape& s) {
  const int64_t grain = std::max<int64_t>(4, kTaskBytes / std::max<int64_t>(s.row_bytes(), 1) / 4 * 4);
  return simd_prepared(spec, s.flops(), make_kernel([=](const LaunchArgs& args) {
                         const Gemv16 gemv{.type = s.dtype,
                                           .M = s.M,
                                           .N = s.N,
                                           .K = s.K,
                                           .x = args.in<float>(0),
                                           .w = args.in<uint16_t>(1),
                                           .bias = s.bias < 0 ? nullptr : args.in<float>(s.bias),
                                           .y = args.out<float>(0)};
                         args.pool.parallel_ranges(s.N, grain, [&](int64_t begin, int64_t end) {
                           multiply_gemv_16(gemv, begin, end);
                         });
                       }));
}

PreparedKernel prepare_gemm(const KernelSpec& spec, const QuantizedMatmulShape& s, const Gemm& gemm) {
  PreparedKernel prepared = simd_prepared(spec, s.flops(), make_kernel([=](const LaunchArgs& args) {
                                            run_gemm(gemm,
                                                     {.a = args.in<float>(0),
                                                      .b_16 = args.in<uint16_t>(1),
                                                      .bias = s.bias < 0 ? nullptr : args.in<float>(s.bias),
                                                      .c = args.out<float>(0),
                                                      .workspace = args.workspace},
                                                     args.pool);
                                          }),
                                          gemm_workspace_bytes(gemm));
  prepared.efficiency = 0.8;
  return prepared;
}

PreparedKernel prepare_bf16_gemm(const KernelSpec& spec, const QuantizedMatmulShape& s,
                                 const Bf16Gemm& gemm) {
  PreparedKernel prepared =
      simd_prepared(spec, s.flops(), make_kernel([=](const LaunchArgs& args) {
                      run_gemm(gemm,
                               {.a = args.in<uint16_t>(0),
                                .b = args.in<uint16_t>(1),
                                .bias = s.bias < 0 ? nullptr : args.in<uint16_t>(s.bias),
                                .c = args.out<uint16_t>(0),
                                .workspace = args.workspace},
                               args.pool);
                    }),
                    gemm_workspace_bytes(gemm));
  prepared.efficiency = bf16_efficiency();
  return prepared;
}

}  // namespace

// x [M, K], w [N, K], bias [N] -> y [M, N]
Result<PreparedKernel> prepare_quantized_matmul_packed(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(check_16_bits(spec));
  const QuantizedMatmulShape s = quantized_matmul_shape(spec);
  const bool is_bf16 = spec.input_dtype(0) == DType::kBF16;
  if (s.M <= kGemv16Rows) {
    if (is_bf16)
      return Status(StatusCode::kUnsupported, "few rows in bf16: widened rows read the weight as fast");
    return prepare_gemv(spec, s);
  }
  if (is_bf16)
    return prepare_bf16_gemm(spec, s, {.m = s.M, .n = s.N, .k = s.K, .a_row = s.K, .b_row = 1, .b_col = s.K});
  return prepare_gemm(
      spec, s, {.m = s.M, .n = s.N, .k = s.K, .a_row = s.K, .b_row = 1, .b_col = s.K, .b_type = s.dtype});
}

// dy [M, N], w [N, K] -> dx [M, K]
Result<PreparedKernel> prepare_quantized_matmul_grad_packed(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(check_16_bits(spec));
  const QuantizedMatmulShape s = quantized_matmul_grad_shape(spec);
  if (spec.input_dtype(0) == DType::kBF16)
    return prepare_bf16_gemm(spec, s, {.m = s.M, .n = s.K, .k = s.N, .a_row = s.N, .b_row = s.K});
  return prepare_gemm(spec, s, {.m = s.M, .n = s.K, .k = s.N, .a_row = s.N, .b_row = s.K, .b_type = s.dtype});
}

}  // namespace tessera::cpu
