#include <algorithm>

#include "graph/base/half.h"
#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/quantized_weight.h"
#include "runtime/backends/cpu/kernels/rounded_block.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kRowGrain = 16;      // rows of the weight a task
constexpr int64_t kTileColumns = 256;  // of the gradient: the largest block

}  // namespace

// x [M, K], w [N, K], bias [N] -> y [M, N]. Sums in double, k ascending.
Result<PreparedKernel> prepare_quantized_matmul(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const QuantizedMatmulShape shape = quantized_matmul_shape(spec);
    const bool rounds = spec.string("activations") == "q8", to_bf16 = spec.string("activations") == "bf16";
    auto kernel = make_kernel([shape, rounds, to_bf16](const LaunchArgs& args) {
      const T *x = args.in<T>(0), *bias = shape.bias < 0 ? nullptr : args.in<T>(shape.bias);
      T* y = args.out<T>(0);
      args.pool.parallel_ranges(shape.N, kRowGrain, [&](int64_t begin, int64_t end) {
        Scratch scratch(args.pool, std::max<int64_t>(1, shape.K));
        float* row = scratch.floats(shape.K);
        for (int64_t n = begin; n < end; ++n) {
          decode_weight(shape, args.inputs[1], n, 0, shape.K, row);
          for (int64_t m = 0; m < shape.M; ++m) {
            double sum = bias ? static_cast<double>(bias[n]) : 0;
            if (rounds) {
              sum = add_rounded_products(shape.dtype, args.in<std::byte>(1) + n * shape.row_bytes(), row,
                                         x + m * shape.K, shape.K, sum);
            } else {
              for (int64_t k = 0; k < shape.K; ++k) {
                const T value = x[m * shape.K + k];
                const T used = to_bf16 ? f32_from_bf16(bf16_from_f32(static_cast<float>(value))) : value;
                sum += static_cast<double>(used) * static_cast<double>(row[k]);
              }
            }
            y[m * shape.N + n] = static_cast<T>(sum);
          }
        }
      });
    });
    return reference_kernel(spec, shape.flops(), std::move(kernel));
  });
}

// dy [M, N], w [N, K] -> dx [M, K]. Sums in double, n ascending.
Result<PreparedKernel> prepare_quantized_matmul_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const QuantizedMatmulShape shape = quantized_matmul_grad_shape(spec);
    const int64_t tiles = (shape.K + kTileColumns - 1) / kTileColumns;
    auto kernel = make_kernel([shape, tiles](const LaunchArgs& args) {
      const T* dy = args.in<T>(0);
      T* dx = args.out<T>(0);
      args.pool.parallel_for(tiles, [&](int64_t tile) {
        const int64_t k0 = tile * kTileColumns, width = std::min(kTileColumns, shape.K - k0);
        alignas(64) float row[kTileColumns];
        for (int64_t m0 = 0; m0 < shape.M; m0 += 4) {
          const int64_t rows = std::min<int64_t>(4, shape.M - m0);
          double sums[4][kTileColumns] = {};
          for (int64_t n = 0; n < shape.N; ++n) {
            decode_weight(shape, args.inputs[1], n, k0, width, row);
            for (int64_t r = 0; r < rows; ++r) {
              const auto each = static_cast<double>(dy[(m0 + r) * shape.N + n]);
              for (int64_t k = 0; k < width; ++k) sums[r][k] += each * static_cast<double>(row[k]);
            }
          }
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t k = 0; k < width; ++k) dx[(m0 + r) * shape.K + k0 + k] = static_cast<T>(sums[r][k]);
        }
      });
    });
    return reference_kernel(spec, shape.flops(), std::move(kernel));
  });
}

}  // namespace tessera::cpu
