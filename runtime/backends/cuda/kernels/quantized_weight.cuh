// Weights of floats as the kernels of matmul and quantized_matmul read them: a lane takes a chunk of a row, 16
// bytes of adjacent numbers.
#pragma once

#include "runtime/backends/cuda/kernels/element.cuh"

namespace tessera::cuda {

// Extents of one product on local operands: x [M, K], weight [N, K] -> y [M, N].
struct QuantizedMatmulShape {
  DType dtype = DType::kBF16;  // of the weight
  int64_t M = 0, N = 0, K = 0;
  int bias = -1;  // operand that is added, -1 for none
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

// A weight's format: kNumbers of a chunk, the chunk as it is loaded, and a single number.
template <class T>
struct SameWeight {  // of the type of x
  static constexpr int kNumbers = 16 / static_cast<int>(sizeof(T));
  using Chunk = Pack<T, kNumbers>;
  static int64_t row_bytes(int64_t K) { return K * static_cast<int64_t>(sizeof(T)); }
  __device__ static void widen(const Chunk& chunk, Wide<T> (&out)[kNumbers]) {
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) out[i] = ::tessera::cuda::widen(chunk.value[i]);
  }
};
template <class T>
struct FloatWeight {
  static constexpr int kNumbers = 8;
  using Chunk = Pack<T, 8>;
  static int64_t row_bytes(int64_t K) { return 2 * K; }
  __device__ static void widen(const Chunk& chunk, float (&out)[kNumbers]) {
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) out[i] = ::tessera::cuda::widen(chunk.value[i]);
  }
  __device__ static float number(const uint8_t* row, int64_t k) {
    return ::tessera::cuda::widen(reinterpret_cast<const T*>(row)[k]);
  }
};

// f(FloatWeight<...>{}).
template <class F>
Result<PreparedKernel> dispatch_weight(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBF16: return f(FloatWeight<__nv_bfloat16>{});
#ifndef TSR_FEW_TYPES
    case DType::kF16: return f(FloatWeight<__half>{});
#endif
    default: return Status(StatusCode::kUnsupported, format("weights of {}", to_text(dtype)));
  }
}

// kCount adjacent numbers, at a multiple of 16 bytes.
template <int kCount, class T>
__device__ inline void load_run(const T* from, Wide<T> (&to)[kCount]) {
  constexpr int kVec = 16 / static_cast<int>(sizeof(T));
#pragma unroll
  for (int i = 0; i < kCount; i += kVec) {
    Wide<T> part[kVec];
    load_pack(from + i, part);
#pragma unroll
    for (int j = 0; j < kVec; ++j) to[i + j] = part[j];
  }
}

}  // namespace tessera::cuda
