// The weight of quantized_matmul as its kernels read it.
#pragma once

#include <cstdint>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/half.h"
#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

// Extents of one product on local operands: x [M, K], weight [N, K] -> y [M, N].
struct QuantizedMatmulShape {
  DType dtype = DType::kBF16;  // of the weight
  int64_t M = 0, N = 0, K = 0;
  int64_t groups = 1;  // of a row, each with its scale
  int bias = -1;       // operand that is added, -1 for none

  bool has_scale() const { return dtype == DType::kI8 || dtype == DType::kU8; }
  int64_t group() const { return groups == 0 ? 0 : K / groups; }  // an empty shard has none
  double flops() const {
    return 2.0 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K);
  }
  // Bytes of a row of the weight.
  int64_t row_bytes() const { return dtype == DType::kU8 ? K / 2 : dtype_bytes(dtype, K); }
};

// When k is split, the shard at offset 0 alone adds the bias.
inline QuantizedMatmulShape quantized_matmul_shape(const KernelSpec& spec) {
  QuantizedMatmulShape shape;
  shape.dtype = spec.input_dtype(1);
  shape.K = spec.input_dims(0).back();
  shape.N = spec.output_dims(0).back();
  shape.M = shape.N == 0 ? 0 : spec.output_elements(0) / shape.N;
  if (shape.has_scale()) shape.groups = spec.input_dims(2)[1];
  const int bias = shape.has_scale() ? 3 : 2;
  if (spec.input_count() > bias && spec.factor(shape.has_scale() ? 'g' : 'k').begin[0] == 0)
    shape.bias = bias;
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

// Numbers [k, k + count) of row n, without their scales if these are an operand. Block types: k and count in
// whole blocks.
inline void decode_weight(const QuantizedMatmulShape& shape, const void* w, int64_t n, int64_t k,
                          int64_t count, float* out) {
  const auto* row = static_cast<const uint8_t*>(w) + n * shape.row_bytes();
  if (shape.dtype == DType::kI8) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(static_cast<int8_t>(row[k + i]));
  } else if (shape.dtype == DType::kU8) {
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t pair = row[(k + i) / 32 * 16 + (k + i) % 16];
      out[i] = static_cast<float>(((k + i) % 32 < 16 ? pair & 15 : pair >> 4) - 8);
    }
  } else {
    decode_blocks(shape.dtype, reinterpret_cast<const std::byte*>(row + dtype_bytes(shape.dtype, k)), out,
                  count);
  }
}

}  // namespace tessera::cpu
