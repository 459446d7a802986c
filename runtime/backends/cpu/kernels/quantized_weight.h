// The weight of quantized_matmul as its kernels read it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/base/blocks/block_codec.h"
#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

// Extents of one product on local operands: x [M, K], weight [N, K] -> y [M, N].
struct QuantizedMatmulShape {
  DType dtype = DType::kBF16;  // of the weight
  int64_t M = 0, N = 0, K = 0;
  int bias = -1;  // operand that is added, -1 for none

  double flops() const {
    return 2.0 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K);
  }
  // Bytes of a row of the weight.
  int64_t row_bytes() const { return dtype_bytes(dtype, K); }
};

// When k is split, the shard at offset 0 alone adds the bias.
inline QuantizedMatmulShape quantized_matmul_shape(const KernelSpec& spec) {
  QuantizedMatmulShape shape;
  shape.dtype = spec.input_dtype(1);
  shape.K = spec.input_dims(0).back();
  shape.N = spec.output_dims(0).back();
  shape.M = shape.N == 0 ? 0 : spec.output_elements(0) / shape.N;
  if (spec.input_count() == 3 && spec.factor('k').begin[0] == 0) shape.bias = 2;
  return shape;
}

// dy [M, N], weight [N, K] -> dx [M, K].
inline QuantizedMatmulShape quantized_matmul_grad_shape(const KernelSpec& spec) {
  QuantizedMatmulShape shape;
  shape.dtype = spec.input_dtype(1);
  shape.N = spec.input_dims(0).back();
  shape.K = spec.output_dims(0).back();
  shape.M = shape.K == 0 ? 0 : spec.output_elements(0) / shape.K;
  return shape;
}

// Numbers [k, k + count) of row n. Block types: k and count in whole blocks.
inline void decode_weight(const QuantizedMatmulShape& shape, const void* w, int64_t n, int64_t k,
                          int64_t count, float* out) {
  const auto* row = static_cast<const std::byte*>(w) + n * shape.row_bytes();
  decode_blocks(shape.dtype, row + dtype_bytes(shape.dtype, k), out, count);
}

}  // namespace tessera::cpu
