// matmul and matmul_weight_grad on the packed Gemm, in f32 or bf16.
//  Zen 5, one thread, GFLOP/s (peak 233; in brackets OpenBLAS 0.3.21 serial, in the same process):
//    1024^3 200 (107), 512x3072x768 205 (107), 512x768x50257 172 (105), 1x3072x768 31-41 (9).
//  Against oneDNN 2.6, on a busy machine: 0.84 to 1.0 times as fast for m >= 128, 0.65 to 2 below.
//  Bench: bench_gemm.
#include <algorithm>

#include "runtime/backends/cpu/kernels/bf16_rows.h"
#include "runtime/backends/cpu/kernels/gemm.h"
#include "runtime/backends/cpu/kernels/gemm_bf16.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

namespace tessera::cpu {
namespace {

int64_t product_but_last(std::span<const int64_t> dims) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < dims.size(); ++i) rows *= dims[i];
  return rows;
}

Result<Activation> activation_of(std::string_view name) {
  if (name == "none") return Activation::kNone;
  if (name == "relu") return Activation::kRelu;
  if (name == "gelu") return Activation::kGeluTanh;
  if (name == "silu") return Activation::kSilu;
  return Status(StatusCode::kUnsupported,
                format("activation '{}': the packed kernel fuses relu, gelu, silu", name));
}

PreparedKernel prepared_gemm(const Gemm& gemm, std::unique_ptr<Kernel> kernel) {
  const double m = static_cast<double>(gemm.m), n = static_cast<double>(gemm.n),
               k = static_cast<double>(gemm.k);
  PreparedKernel prepared;
  prepared.kernel = std::move(kernel);
  prepared.workspace_bytes = gemm_workspace_bytes(gemm);
  prepared.flops = 2 * m * n * k;
  prepared.bytes = 4 * (m * k + k * n + m * n);
  prepared.efficiency = gemm.m <= 8 ? 0.5 : 0.85;
  return prepared;
}

// Operands and results in bf16.
bool is_bf16(const KernelSpec& spec) {
  for (int i = 0; i < spec.input_count(); ++i)
    if (spec.input_dtype(i) != DType::kBF16) return false;
  for (int i = 0; i < spec.output_count(); ++i)
    if (spec.output_dtype(i) != DType::kBF16) return false;
  return true;
}

PreparedKernel prepared_bf16_gemm(const Gemm& f32, int a, int b, bool bias, bool pre) {
  const Bf16Gemm gemm{.m = f32.m,
                      .n = f32.n,
                      .k = f32.k,
                      .a_row = f32.a_row,
                      .a_col = f32.a_col,
                      .b_row = f32.b_row,
                      .b_col = f32.b_col,
                      .activation = f32.activation};
  PreparedKernel prepared = prepared_gemm(f32, make_kernel([=](const LaunchArgs& args) {
                                            run_gemm(gemm,
                                                     {.a = args.in<uint16_t>(a),
                                                      .b = args.in<uint16_t>(b),
                                                      .bias = bias ? args.in<uint16_t>(2) : nullptr,
                                                      .c = args.out<uint16_t>(0),
                                                      .pre = pre ? args.out<uint16_t>(1) : nullptr,
                                                      .workspace = args.workspace},
                                                     args.pool);
                                          }));
  prepared.workspace_bytes = gemm_workspace_bytes(gemm);
  prepared.bytes /= 2;
  prepared.efficiency = bf16_efficiency();
  return prepared;
}

// A few rows in bf16 by a weight [N, K]: as fast as it is read. x and y are f32 in the workspace.
PreparedKernel prepared_few_bf16_rows(const KernelSpec& spec, Gemm gemm, bool bias) {
  const auto align = [](int64_t floats) { return (floats + 15) / 16 * 16; };
  gemm.b_type = DType::kBF16;
  gemm.tf32 = false;  // which bf16 is within
  const int64_t M = gemm.m, N = gemm.n, K = gemm.k, tasks = skinny_gemm_tasks(gemm);
  const int64_t x_floats = align(M * K), y_floats = align(M * N);
  return simd_prepared(spec, 2.0 * static_cast<double>(M * N) * static_cast<double>(K),
                       make_kernel([=](const LaunchArgs& args) {
                         auto* const x = static_cast<float*>(args.workspace);
                         float *const y = x + x_floats, *const added = y + y_floats;
                         widen_bf16(args.pool, args.in<uint16_t>(0), x, M * K);
                         if (bias) widen_bf16(args.pool, args.in<uint16_t>(2), added, N);
                         const GemmBuffers buffers{
                             .a = x, .b_16 = args.in<uint16_t>(1), .bias = bias ? added : nullptr, .c = y};
                         args.pool.parallel_for(
                             tasks, [&](int64_t task) { run_skinny_gemm_task(gemm, buffers, task); });
                         round_to_bf16(args.pool, y, args.out<uint16_t>(0), M * N);
                       }),
                       4 * (x_floats + y_floats + (bias ? align(N) : 0)));
}

// x [M, K], w [K, N] or [N, K] -> y [M, N]
Gemm gemm_of_matmul(const KernelSpec& spec) {
  Gemm gemm;
  gemm.m = product_but_last(spec.input_dims(0));
  gemm.k = spec.input_dims(0).back();
  gemm.n = spec.output_dims(0).back();
  gemm.a_row = gemm.k;
  gemm.b_row = gemm.n;
  if (spec.i64("trans_w") != 0) {
    gemm.b_row = 1;
    gemm.b_col = gemm.k;
  }
  gemm.tf32 = spec.i64("allow_tf32") == 1;
  return gemm;
}

}  // namespace

// y[m, n] = act(sum_k x[m, k] w[k, n] + bias[n]); pre is the value before act.
Result<PreparedKernel> prepare_matmul_packed(const KernelSpec& spec) {
  const bool bf16 = is_bf16(spec);
  TSR_RETURN_IF_ERROR(bf16 ? simd_supported() : require_simd_f32(spec));
  Gemm gemm = gemm_of_matmul(spec);
  TSR_ASSIGN_OR_RETURN(gemm.activation, activation_of(spec.string("activation")));
  // When k is split, the addend at offset 0 alone gets the bias.
  const tsr_abi_factor* k_factor = spec.find_factor('k');
  const bool bias = spec.input_count() > 2 && (k_factor == nullptr || k_factor->begin[0] == 0);
  const bool pre = spec.output_count() > 1;
  const bool is_few = gemm.m <= kSkinnyHalfRows && gemm.b_row == 1 && gemm.b_col != 1;
  if (bf16 && is_few && gemm.activation == Activation::kNone && !pre && gemm.m * gemm.n * gemm.k > 0)
    return prepared_few_bf16_rows(spec, gemm, bias);
  if (bf16) return prepared_bf16_gemm(gemm, 0, 1, bias, pre);
  const auto buffers_of = [bias, pre](const LaunchArgs& args) {
    return GemmBuffers{.a = args.in<float>(0),
                       .b = args.in<float>(1),
                       .bias = bias ? args.in<float>(2) : nullptr,
                       .c = args.out<float>(0),
                       .pre = pre ? args.out<float>(1) : nullptr,
                       .workspace = args.workspace};
  };
  if (const int64_t count = skinny_gemm_tasks(gemm); count > 0) {
    const auto tasks = [count](const LaunchArgs&, int) { return count; };
    const auto run = [gemm, buffers_of](const LaunchArgs& args, int, int64_t task) {
      run_skinny_gemm_task(gemm, buffers_of(args), task);
    };
    return prepared_gemm(gemm, make_phased_kernel(1, false, tasks, run));
  }
  return prepared_gemm(gemm, make_kernel([gemm, buffers_of](const LaunchArgs& args) {
                         run_gemm(gemm, buffers_of(args), args.pool);
                       }));
}

// y[m, n] = sum_k x[m, k] w[k, n] + addend[m, n], which is added last: the bits of a product and an addition. So long as
// one block of k is all: y, which has the addend's place, holds no sums in between. Few rows (decoding) have products
// that share a launch with other kernels.
Result<PreparedKernel> prepare_matmul_add_packed(const KernelSpec& spec) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  const tsr_abi_factor* k_factor = spec.find_factor('k');
  Gemm gemm = gemm_of_matmul(spec);
  gemm.adds = true;
  if (spec.input_count() > 3 || gemm.k > kGemmDepth || gemm.m <= kSkinnyRows ||
      (k_factor != nullptr && k_factor->begin[0] != 0))
    return Status(
        StatusCode::kUnsupported,
        format("{} rows by {} numbers{}: this kernel adds products of more than {} rows and at most {} "
               "numbers, the first of a sum, without bias",
               gemm.m, gemm.k, spec.input_count() > 3 ? ", a bias" : "", kSkinnyRows, kGemmDepth));
  return prepared_gemm(
      gemm, make_kernel([gemm](const LaunchArgs& args) {
        const float* addend = args.in<float>(2);
        float* y = args.out<float>(0);
        constexpr int64_t kGrain = int64_t{1} << 14;
        if (addend != y)
          args.pool.parallel_ranges(gemm.m * gemm.n, kGrain, [&](int64_t begin, int64_t end) {
            std::copy(addend + begin, addend + end, y + begin);
          });
        run_gemm(gemm, {.a = args.in<float>(0), .b = args.in<float>(1), .c = y, .workspace = args.workspace},
                 args.pool);
      }));
}

// dw[k, n] = sum over rows of x[row, k] dy[row, n]; with trans_w dw[n, k], that is A = dy^T and B = x.
Result<PreparedKernel> prepare_matmul_weight_grad_packed(const KernelSpec& spec) {
  const bool bf16 = is_bf16(spec);
  TSR_RETURN_IF_ERROR(bf16 ? simd_supported() : require_simd_f32(spec));
  const bool transposed = spec.i64("trans_w") != 0;
  const int a = transposed ? 1 : 0;
  Gemm gemm;
  gemm.tf32 = spec.i64("allow_tf32") == 1;
  gemm.m = spec.input_dims(a).back();
  gemm.n = spec.input_dims(1 - a).back();
  gemm.k = product_but_last(spec.input_dims(0));
  gemm.a_row = 1;
  gemm.a_col = gemm.m;
  gemm.b_row = gemm.n;
  if (bf16) return prepared_bf16_gemm(gemm, a, 1 - a, false, false);
  return prepared_gemm(gemm, make_kernel([gemm, a](const LaunchArgs& args) {
                         run_gemm(gemm,
                                  {.a = args.in<float>(a),
                                   .b = args.in<float>(1 - a),
                                   .c = args.out<float>(0),
                                   .workspace = args.workspace},
                                  args.pool);
                       }));
}

}  // namespace tessera::cpu
