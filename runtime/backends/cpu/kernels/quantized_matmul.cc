#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "graph/base/half.h"
#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/quantized_weight.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kRowGrain = 16;      // rows of the weight a task
constexpr int64_t kTileColumns = 256;  // of the gradient: the largest block

float round_to_f16(float value) {
  const float magnitude = std::fabs(value);
  return magnitude >= 0x1p-14f && magnitude <= 65504.0f ? f32_from_f16(f16_from_f32(value)) : value;
}

// Activations rounded to 8 bits (quantized_activations-inl.h).
struct RoundedBlock {
  double values[256];
  double sum_error = 0;  // of their sum as it is stored, which minima of weights are multiplied by
};

template <class T>
void round_block(const T* x, int64_t count, RoundedBlock& out) {
  float most = 0;
  bool is_finite = true;
  for (int64_t i = 0; i < count; ++i) {
    most = std::max(most, std::fabs(static_cast<float>(x[i])));
    is_finite = is_finite && std::isfinite(static_cast<float>(x[i]));
  }
  const float scale = !is_finite      ? std::numeric_limits<float>::quiet_NaN()
                      : most < 1e-36f ? 0.0f
                                      : most / 127.0f;
  const float inverse = scale > 0 ? 127.0f / most : 0.0f;
  const float stored = count > 32 ? scale : round_to_f16(scale);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double code = std::nearbyint(static_cast<float>(x[i]) * inverse);
    out.values[i] = code * static_cast<double>(stored);
    sum += code;
  }
  out.sum_error =
      static_cast<double>(round_to_f16(scale * static_cast<float>(sum))) - static_cast<double>(stored) * sum;
}

// Whether every weight of a block of 32 has a number added to it, the second f16 of the block.
bool has_minimum(DType type) { return type == DType::kQ4_1 || type == DType::kQ5_1; }

double minimum_of(const std::byte* block) {
  uint16_t bits = 0;
  std::memcpy(&bits, block + sizeof bits, sizeof bits);
  return f32_from_f16(bits);
}

}  // namespace

// x [M, K], w [N, K], bias [N] -> y [M, N]. Sums in double, k ascending.
Result<PreparedKernel> prepare_quantized_matmul(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const QuantizedMatmulShape shape = quantized_matmul_shape(spec);
    const bool rounds = spec.string("activations") == "q8";
    const int64_t block = info(shape.dtype).block_elements == 256 ? 256 : 32;
    auto kernel = make_kernel([shape, rounds, block](const LaunchArgs& args) {
      const T *x = args.in<T>(0), *bias = shape.bias < 0 ? nullptr : args.in<T>(shape.bias);
      T* y = args.out<T>(0);
      args.pool.parallel_ranges(shape.N, kRowGrain, [&](int64_t begin, int64_t end) {
        Scratch scratch(args.pool, std::max<int64_t>(1, shape.K));
        float* row = scratch.floats(shape.K);
        for (int64_t n = begin; n < end; ++n) {
          decode_weight(shape, args.inputs[1], n, 0, shape.K, row);
          for (int64_t m = 0; m < shape.M; ++m) {
            double sum = bias ? static_cast<double>(bias[n]) : 0;
            RoundedBlock rounded;
            for (int64_t k = 0; k < shape.K; ++k) {
              if (rounds && k % block == 0) {
                round_block(x + m * shape.K + k, std::min(block, shape.K - k), rounded);
                if (has_minimum(shape.dtype))
                  sum += rounded.sum_error * minimum_of(static_cast<const std::byte*>(args.inputs[1]) +
                                                        dtype_bytes(shape.dtype, n * shape.K + k));
              }
              sum += (rounds ? rounded.values[k % block] : static_cast<double>(x[m * shape.K + k])) *
                     static_cast<double>(row[k]);
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
