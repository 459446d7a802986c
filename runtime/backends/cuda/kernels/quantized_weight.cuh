// Weights as the kernels of matmul and quantized_matmul read them: a lane takes a chunk of a row (16 bytes,
// or 8 of 4-bit numbers), which is one or two runs of adjacent numbers.
#pragma once

#include "runtime/backends/cuda/kernels/element.cuh"
#include "runtime/backends/cuda/kernels/mma.cuh"

namespace tessera::cuda {

// Extents of one product on local operands: x [M, K], weight [N, K] -> y [M, N].
struct QuantizedMatmulShape {
  DType dtype = DType::kBF16;  // of the weight
  int64_t M = 0, N = 0, K = 0;
  int64_t groups = 1;  // of a row, each with its scale
  int bias = -1;       // operand that is added, -1 for none
  bool has_scale() const { return dtype == DType::kI8 || dtype == DType::kU8; }
  int64_t group() const { return groups == 0 ? 0 : K / groups; }  // an empty shard has none
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

// A weight's format: kNumbers of a chunk, kRun of them adjacent in x; the chunk as it is loaded, the place in
// x where run r of chunk c begins, and a single number.
template <class T>
struct SameWeight {  // of the type of x
  static constexpr int kNumbers = 16 / static_cast<int>(sizeof(T)), kRun = kNumbers;
  static constexpr bool kScaled = false;
  using Chunk = Pack<T, kNumbers>;
  static int64_t row_bytes(int64_t K) { return K * static_cast<int64_t>(sizeof(T)); }
  __device__ static int64_t run(int64_t c, int) { return c * kNumbers; }
  __device__ static void widen(const Chunk& chunk, Wide<T> (&out)[kNumbers]) {
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) out[i] = ::tessera::cuda::widen(chunk.value[i]);
  }
};
template <class T>
struct FloatWeight {
  static constexpr int kNumbers = 8, kRun = 8;
  static constexpr bool kScaled = false;
  using Chunk = Pack<T, 8>;
  static int64_t row_bytes(int64_t K) { return 2 * K; }
  __device__ static int64_t run(int64_t c, int) { return c * kNumbers; }
  __device__ static void widen(const Chunk& chunk, float (&out)[kNumbers]) {
#pragma unroll
    for (int i = 0; i < kNumbers; ++i) out[i] = ::tessera::cuda::widen(chunk.value[i]);
  }
  __device__ static float number(const uint8_t* row, int64_t k) {
    return ::tessera::cuda::widen(reinterpret_cast<const T*>(row)[k]);
  }
};

// Byte i of `bytes`, below 2^8, plus 2^23, whose last bits are the number: a byte move replaces a conversion,
// which runs at half the rate or less.
__device__ inline float byte_above_2_23(uint32_t bytes, int i) {
  return __uint_as_float(__byte_perm(bytes, 0x4b000000u, 0x7540u + static_cast<uint32_t>(i)));
}

struct Int8Weight {
  static constexpr int kNumbers = 16, kRun = 8;
  static constexpr bool kScaled = true;
  using Chunk = Pack<uint32_t, 4>;
  static int64_t row_bytes(int64_t K) { return K; }
  __device__ static int64_t run(int64_t c, int r) { return c * kNumbers + 8 * r; }
  __device__ static void widen(const Chunk& chunk, float (&out)[kNumbers]) {
#pragma unroll
    for (int i = 0; i < kNumbers; ++i)  // moved up by 128, and back
      out[i] = byte_above_2_23(chunk.value[i / 4] ^ 0x80808080u, i % 4) - 8388736.0f;
  }
  __device__ static float number(const uint8_t* row, int64_t k) {
    return static_cast<float>(static_cast<int8_t>(row[k]));
  }
};
// Half of 32 numbers: 8 bytes hold 8 adjacent ones in their low halves and, 16 numbers further, 8 in their
// high ones.
struct Int4Weight {
  static constexpr int kNumbers = 16, kRun = 8;
  static constexpr bool kScaled = true;
  using Chunk = Pack<uint32_t, 2>;
  static int64_t row_bytes(int64_t K) { return K / 2; }
  __device__ static int64_t run(int64_t c, int r) { return c / 2 * 32 + c % 2 * 8 + 16 * r; }
  __device__ static void widen(const Chunk& chunk, float (&out)[kNumbers]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      out[i] = byte_above_2_23(chunk.value[i / 4] & 0x0f0f0f0fu, i % 4) - 8388616.0f;
      out[8 + i] = byte_above_2_23(chunk.value[i / 4] >> 4 & 0x0f0f0f0fu, i % 4) - 8388616.0f;
    }
  }
  __device__ static float number(const uint8_t* row, int64_t k) {
    const int pair = row[k / 32 * 16 + k % 16];
    return static_cast<float>((k % 32 < 16 ? pair & 15 : pair >> 4) - 8);
  }
};

// The numbers of a word, 4 bits each, as pairs of T, exactly: low halves of bytes 0 and 2, 1 and 3, then the
// high halves.
template <class T>
__device__ inline void int4_pairs(uint32_t word, uint32_t (&out)[4]) {
  constexpr bool is_half = std::is_same_v<T, __half>;
  using Two = std::conditional_t<is_half, __half2, __nv_bfloat162>;
  constexpr uint32_t above = is_half ? 0x64006400u : 0x43004300u;  // 1024 and 128: the last bits count ones
  constexpr uint32_t moved = is_half ? 0x64086408u : 0x43084308u;  // 8 more
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t bits = masked_under(word >> (8 * (i % 2) + 4 * (i / 2)), 0x000f000fu, above);
    Two pair, offset;
    memcpy(&pair, &bits, sizeof(pair));
    memcpy(&offset, &moved, sizeof(offset));
    pair = __hsub2(pair, offset);
    memcpy(&out[i], &pair, sizeof(pair));
  }
}

// f(FloatWeight<...>{}), f(Int8Weight{}) or f(Int4Weight{}).
template <class F>
Result<PreparedKernel> dispatch_weight(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBF16: return f(FloatWeight<__nv_bfloat16>{});
#ifndef TSR_FEW_TYPES
    case DType::kF16: return f(FloatWeight<__half>{});
#endif
    case DType::kI8: return f(Int8Weight{});
    case DType::kU8: return f(Int4Weight{});
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
