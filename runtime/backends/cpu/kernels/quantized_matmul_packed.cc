// quantized_matmul and its gradient of weights in 16 bits: Gemm, which widens the weight as it reads it. x and weight in
// bf16: Bf16Gemm.
//  AMD EPYC (Zen 5), one thread: one row reads 80 to 90 % of what plain reads reach (33 GB/s of 39); 128 and 512 rows
//  take 200 to 230 GFLOP/s, as in f32, of 270; in bf16 380 to 450, of 540.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "runtime/backends/cpu/kernels/bf16_rows.h"
#include "runtime/backends/cpu/kernels/gemm.h"
#include "runtime/backends/cpu/kernels/gemm_bf16.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/quantized_weight.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

namespace tessera::cpu {

namespace {

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

int64_t align_64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

Gemm gemm_of(const QuantizedMatmulShape& s) {
  return {.m = s.M, .n = s.N, .k = s.K, .a_row = s.K, .b_row = 1, .b_col = s.K, .b_type = s.dtype};
}

// Few rows of x. With `rounds`, x is rounded to bf16 first, by one task; the workspace holds it, in 16 bits and widened.
PreparedKernel prepare_few_rows(const KernelSpec& spec, const QuantizedMatmulShape& s, bool rounds) {
  const Gemm gemm = gemm_of(s);
  const int64_t rounded_bytes = rounds ? align_64(2 * s.M * s.K) : 0, product_tasks = skinny_gemm_tasks(gemm);
  const int first = rounds ? 0 : 1;
  const auto tasks = [=](const LaunchArgs&, int phase) {
    return phase + first == 0 ? int64_t{1} : product_tasks;
  };
  const auto run = [=](const LaunchArgs& args, int phase, int64_t task) {
    auto* const wide = reinterpret_cast<float*>(static_cast<std::byte*>(args.workspace) + rounded_bytes);
    if (phase + first == 0) {
      auto* const rounded = static_cast<uint16_t*>(args.workspace);
      round_to_bf16(args.in<float>(0), rounded, s.M * s.K);
      return widen_bf16(rounded, wide, s.M * s.K);
    }
    run_skinny_gemm_task(gemm,
                         {.a = rounds ? wide : args.in<float>(0),
                          .b_16 = args.in<uint16_t>(1),
                          .bias = s.bias < 0 ? nullptr : args.in<float>(s.bias),
                          .c = args.out<float>(0)},
                         task);
  };
  return simd_prepared(spec, s.flops(), make_phased_kernel(rounds ? 2 : 1, rounds, tasks, run),
                       rounds ? rounded_bytes + align_64(4 * s.M * s.K) : 0);
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

// x in f32 is rounded to bf16; sums stay f32. In the workspace: x, then what the Gemm needs.
PreparedKernel prepare_rounding_gemm(const KernelSpec& spec, const QuantizedMatmulShape& s) {
  const Bf16Gemm gemm{
      .m = s.M, .n = s.N, .k = s.K, .a_row = s.K, .b_row = 1, .b_col = s.K, .result = DType::kF32};
  const int64_t x_bytes = align_64(2 * s.M * s.K);
  PreparedKernel prepared =
      simd_prepared(spec, s.flops(), make_kernel([=](const LaunchArgs& args) {
                      auto* const x = static_cast<uint16_t*>(args.workspace);
                      round_to_bf16(args.pool, args.in<float>(0), x, s.M * s.K);
                      run_gemm(gemm,
                               {.a = x,
                                .b = args.in<uint16_t>(1),
                                .bias = s.bias < 0 ? nullptr : args.in<float>(s.bias),
                                .c = args.out<float>(0),
                                .workspace = static_cast<std::byte*>(args.workspace) + x_bytes},
                               args.pool);
                    }),
                    x_bytes + gemm_workspace_bytes(gemm));
  prepared.efficiency = bf16_efficiency();
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
  if (!is_bf16 && spec.string("activations") == "bf16") {
    if (s.M > kSkinnyHalfRows && has_bf16_products()) return prepare_rounding_gemm(spec, s);
    return Status(StatusCode::kUnsupported,
                  "few rows, or a CPU without products of bf16: rounded first, then as f32");
  }
  if (is_bf16 && s.M <= kSkinnyHalfRows)
    return Status(StatusCode::kUnsupported, "few rows in bf16: widened rows read the weight as fast");
  if (is_bf16)
    return prepare_bf16_gemm(spec, s, {.m = s.M, .n = s.N, .k = s.K, .a_row = s.K, .b_row = 1, .b_col = s.K});
  if (skinny_gemm_tasks(gemm_of(s)) > 0) return prepare_few_rows(spec, s, false);
  return prepare_gemm(spec, s, gemm_of(s));
}

// Likewise with x rounded to bf16, in f32: for few rows, and for the bits of bf16 products on machines without them.
Result<PreparedKernel> prepare_quantized_matmul_rounded(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(check_16_bits(spec));
  if (spec.string("activations") != "bf16" || spec.input_dtype(0) != DType::kF32)
    return Status(StatusCode::kUnsupported, "nothing is rounded");
  const QuantizedMatmulShape s = quantized_matmul_shape(spec);
  if (skinny_gemm_tasks(gemm_of(s)) > 0) return prepare_few_rows(spec, s, true);
  const int64_t count = s.M * s.K, rounded_bytes = align_64(2 * count), wide_bytes = align_64(4 * count);
  PreparedKernel prepared = prepare_gemm(spec, s, gemm_of(s));
  std::shared_ptr<const Kernel> inner = std::move(prepared.kernel);
  const int inputs = spec.input_count();
  prepared.kernel = make_kernel([=](const LaunchArgs& args) {
    auto* const rounded = static_cast<uint16_t*>(args.workspace);
    auto* const wide = reinterpret_cast<float*>(static_cast<std::byte*>(args.workspace) + rounded_bytes);
    round_to_bf16(args.pool, args.in<float>(0), rounded, count);
    widen_bf16(args.pool, rounded, wide, count);
    const void* operands[3] = {wide, args.inputs[1], inputs > 2 ? args.inputs[2] : nullptr};
    inner->launch({operands, args.outputs, reinterpret_cast<std::byte*>(wide) + wide_bytes, args.pool});
  });
  prepared.workspace_bytes += rounded_bytes + wide_bytes;
  return prepared;
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
