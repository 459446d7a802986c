#include <array>
#include <cstddef>

#include "graph/base/fp8.h"
#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/gemm.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/simd_targets.h"

namespace tessera::cpu {

namespace {

// C[m, n] = sum over k of A[m, k] B[k, n], A and B as codes.
struct Codes {
  std::array<float, 256> value;
  explicit Codes(DType dtype) : value() {
    for (size_t code = 0; code < value.size(); ++code)
      value[code] = f32_from_fp8(static_cast<uint8_t>(code), fp8_format(dtype));
  }
};

struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_col = 1, b_row = 0, b_col = 1;  // strides in elements
  int a = 0, b = 1;                                    // operands
  bool has_bias = false;
};

int64_t product_but_last(std::span<const int64_t> dims) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < dims.size(); ++i) rows *= dims[i];
  return rows;
}

ProductShape matmul_shape(const KernelSpec& spec) {
  ProductShape shape;
  shape.m = product_but_last(spec.input_dims(0));
  shape.k = spec.input_dims(0).back();
  shape.n = spec.output_dims(0).back();
  shape.a_row = shape.k;
  shape.b_row = shape.n;
  if (spec.i64("trans_w") == 1) shape.b_row = 1, shape.b_col = shape.k;
  shape.has_bias = spec.input_count() == 5 && spec.factor('k').begin[0] == 0;
  return shape;
}

// dw^T = dy^T x is the same product with the operands exchanged.
ProductShape weight_grad_shape(const KernelSpec& spec) {
  ProductShape shape;
  shape.a = spec.i64("trans_w") == 1 ? 1 : 0;
  shape.b = 1 - shape.a;
  shape.m = spec.input_dims(shape.a).back();
  shape.n = spec.input_dims(shape.b).back();
  shape.k = product_but_last(spec.input_dims(0));
  shape.a_row = 1;
  shape.a_col = shape.m;
  shape.b_row = shape.n;
  return shape;
}

double flops_of(const ProductShape& shape) {
  return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
}

// Codes are multiplied and summed in double, k ascending.
Result<PreparedKernel> reference(const KernelSpec& spec, const ProductShape& shape) {
  return dispatch_float(spec.output_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const Codes a_codes(spec.input_dtype(shape.a)), b_codes(spec.input_dtype(shape.b));
    return reference_kernel(
        spec, flops_of(shape), make_kernel([shape, a_codes, b_codes](const LaunchArgs& args) {
          const auto *a = args.in<uint8_t>(shape.a), *b = args.in<uint8_t>(shape.b);
          const double scale = static_cast<double>(*args.in<T>(2)) * static_cast<double>(*args.in<T>(3));
          const T* bias = shape.has_bias ? args.in<T>(4) : nullptr;
          T* out = args.out<T>(0);
          if (shape.m == 0) return;
          args.pool.parallel_for(shape.m, [&](int64_t m) {
            for (int64_t n = 0; n < shape.n; ++n) {
              double sum = 0;
              for (int64_t k = 0; k < shape.k; ++k)
                sum += static_cast<double>(a_codes.value[a[m * shape.a_row + k * shape.a_col]]) *
                       static_cast<double>(b_codes.value[b[k * shape.b_row + n * shape.b_col]]);
              out[m * shape.n + n] = static_cast<T>(sum * scale + (bias ? static_cast<double>(bias[n]) : 0));
            }
          });
        }));
  });
}

constexpr int64_t kLine = 64;  // bytes: what the workspace is aligned to
int64_t lines(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// Widens both operands to f32, times their scales, which rounds nothing; then runs the packed Gemm.
Result<PreparedKernel> widened(const KernelSpec& spec, const ProductShape& shape) {
  TSR_RETURN_IF_ERROR(require_simd_f32(spec));
  Gemm gemm;
  gemm.m = shape.m, gemm.n = shape.n, gemm.k = shape.k;
  gemm.a_row = shape.a_row, gemm.a_col = shape.a_col;
  gemm.b_row = shape.b_row, gemm.b_col = shape.b_col;
  const int64_t a_bytes = lines(4 * shape.m * shape.k), b_bytes = lines(4 * shape.n * shape.k);
  const Codes a_codes(spec.input_dtype(shape.a)), b_codes(spec.input_dtype(shape.b));
  PreparedKernel prepared;
  prepared.kernel = make_kernel([=](const LaunchArgs& args) {
    auto* memory = static_cast<std::byte*>(args.workspace);
    const auto widen = [&](int operand, const Codes& codes, int64_t count, std::byte* at) {
      const auto* from = args.in<uint8_t>(operand);
      auto* to = reinterpret_cast<float*>(at);
      const float scale = *args.in<float>(2 + operand);
      std::array<float, 256> scaled;
      for (size_t code = 0; code < scaled.size(); ++code) scaled[code] = codes.value[code] * scale;
      args.pool.parallel_ranges(count, kElementGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) to[i] = scaled[from[i]];
      });
      return to;
    };
    const float* a = widen(shape.a, a_codes, shape.m * shape.k, memory);
    const float* b = widen(shape.b, b_codes, shape.n * shape.k, memory + a_bytes);
    run_gemm(gemm,
             {.a = a,
              .b = b,
              .bias = shape.has_bias ? args.in<float>(4) : nullptr,
              .c = args.out<float>(0),
              .workspace = memory + a_bytes + b_bytes},
             args.pool);
  });
  prepared.workspace_bytes = a_bytes + b_bytes + gemm_workspace_bytes(gemm);
  prepared.flops = flops_of(shape);
  prepared.bytes = operand_bytes(spec) + 2.0 * static_cast<double>(a_bytes + b_bytes);
  prepared.efficiency = shape.m <= 8 ? 0.5 : 0.85;
  return prepared;
}

}  // namespace

// x [M, K], w [K, N] or [N, K], scales, bias [N] -> y [M, N]. When k is split, the shard at offset 0 alone
// adds the bias.
Result<PreparedKernel> prepare_scaled_matmul(const KernelSpec& spec) {
  return reference(spec, matmul_shape(spec));
}
Result<PreparedKernel> prepare_scaled_matmul_widened(const KernelSpec& spec) {
  return widened(spec, matmul_shape(spec));
}

// x [M, K], dy [M, N], scales -> dw [K, N], or [N, K] when trans_w = 1
Result<PreparedKernel> prepare_scaled_matmul_weight_grad(const KernelSpec& spec) {
  return reference(spec, weight_grad_shape(spec));
}
Result<PreparedKernel> prepare_scaled_matmul_weight_grad_widened(const KernelSpec& spec) {
  return widened(spec, weight_grad_shape(spec));
}

}  // namespace tessera::cpu
