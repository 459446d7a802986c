// The weight of narrow_matmul as its kernels read it: a lane takes a chunk of a row (16 bytes, or 8 of
// numbers of 4 bits), which is one or two runs of 8 neighbouring numbers.
#pragma once

#include "runtime/backends/cuda/kernels/element.cuh"

namespace tessera::cuda {

// Extents of one product on local operands: x [M, K], weight [N, K] -> y [M, N].
struct NarrowShape {
  DType dtype = DType::kBF16;  // of the weight
  int64_t M = 0, N = 0, K = 0;
  int64_t groups = 1;  // of a row, each with its scale
  int bias = -1;       // the operand that is added, -1 for none
  bool has_scale() const { return dtype == DType::kI8 || dtype == DType::kU8; }
  int64_t group() const { return groups == 0 ? 0 : K / groups; }  // an empty shard has none
};

// Of the shards of k only the one that begins at 0 adds the bias.
inline NarrowShape narrow_shape(const KernelSpec& spec) {
  NarrowShape shape;
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

// kNumbers of a chunk, its bytes, where run r of chunk c begins in x, and a number by itself.
template <class T>
struct FloatWeight {
  static constexpr int kNumbers = 8, kBytes = 16;
  static constexpr bool kScaled = false;
  static int64_t row_bytes(int64_t K) { return 2 * K; }
  __device__ static int64_t run(int64_t c, int) { return c * kNumbers; }
  __device__ static void widen(const uint8_t* chunk, float (&out)[kNumbers]) {
    load_pack<kNumbers>(reinterpret_cast<const T*>(chunk), out);
  }
  __device__ static float number(const uint8_t* row, int64_t k) {
    return ::tessera::cuda::widen(reinterpret_cast<const T*>(row)[k]);
  }
};
struct Int8Weight {
  static constexpr int kNumbers = 16, kBytes = 16;
  static constexpr bool kScaled = true;
  static int64_t row_bytes(int64_t K) { return K; }
  __device__ static int64_t run(int64_t c, int r) { return c * kNumbers + 8 * r; }
  __device__ static void widen(const uint8_t* chunk, float (&out)[kNumbers]) {
    const auto loaded = *reinterpret_cast<const Pack<uint32_t, 4>*>(chunk);
#pragma unroll
    for (int i = 0; i < kNumbers; ++i)
      out[i] = static_cast<float>(static_cast<int8_t>(loaded.value[i / 4] >> (8 * (i % 4))));
  }
  __device__ static float number(const uint8_t* row, int64_t k) {
    return static_cast<float>(static_cast<int8_t>(row[k]));
  }
};
// Half of 32 numbers: 8 bytes hold 8 neighbours in their low halves and, 16 numbers further, 8 in their high
// ones.
struct Int4Weight {
  static constexpr int kNumbers = 16, kBytes = 8;
  static constexpr bool kScaled = true;
  static int64_t row_bytes(int64_t K) { return K / 2; }
  __device__ static int64_t run(int64_t c, int r) { return c / 2 * 32 + c % 2 * 8 + 16 * r; }
  __device__ static void widen(const uint8_t* chunk, float (&out)[kNumbers]) {
    const auto loaded = *reinterpret_cast<const Pack<uint32_t, 2>*>(chunk);
    // 2^23 + q has q in its last bits: no conversion.
    const auto number = [](uint32_t bits) {
      return __uint_as_float((bits & 15u) | 0x4b000000u) - 8388616.0f;
    };
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      out[i] = number(loaded.value[i / 4] >> (8 * (i % 4)));
      out[8 + i] = number(loaded.value[i / 4] >> (8 * (i % 4) + 4));
    }
  }
  __device__ static float number(const uint8_t* row, int64_t k) {
    const int pair = row[k / 32 * 16 + k % 16];
    return static_cast<float>((k % 32 < 16 ? pair & 15 : pair >> 4) - 8);
  }
};

// f(FloatWeight<...>{}), f(Int8Weight{}) or f(Int4Weight{}).
template <class F>
Result<Prepared> dispatch_weight(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBF16: return f(FloatWeight<__nv_bfloat16>{});
    case DType::kF16: return f(FloatWeight<__half>{});
    case DType::kI8: return f(Int8Weight{});
    case DType::kU8: return f(Int4Weight{});
    default: return Status(StatusCode::kUnsupported, format("weights of {}", to_text(dtype)));
  }
}

// 8 neighbours, at a multiple of their size.
template <class T>
__device__ inline void load_run(const T* from, Wide<T> (&to)[8]) {
  constexpr int kVec = 16 / static_cast<int>(sizeof(T));
#pragma unroll
  for (int i = 0; i < 8; i += kVec) {
    Wide<T> part[kVec];
    load_pack(from + i, part);
#pragma unroll
    for (int j = 0; j < kVec; ++j) to[i + j] = part[j];
  }
}

}  // namespace tessera::cuda
