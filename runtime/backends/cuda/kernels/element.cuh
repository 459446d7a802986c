// Element types: the type that a kernel computes in (`Wide`), loading and storing, and the choice of a type
// at prepare.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <limits>

#include "runtime/backends/cuda/cuda_kernel.h"

namespace tessera::cuda {

// Wide: the type of sums and transcendental functions, f64 for f64 and f32 for all others. It is also the
// type of statistics (means, log-sums, losses) and of an optimizer's state.
template <class T>
struct WideOf {
  using type = float;
};
template <>
struct WideOf<double> {
  using type = double;
};
template <class T>
using Wide = typename WideOf<T>::type;

__device__ inline float widen(float x) { return x; }
__device__ inline double widen(double x) { return x; }
__device__ inline float widen(__half x) { return __half2float(x); }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T>
__device__ inline T narrow(Wide<T> x) {
  return x;
}
template <>
__device__ inline __half narrow<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// Pack: adjacent elements that are loaded and stored at once.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T value[kCount];
};
// Stores a pack of 16 bytes at once. The compiler stores a pack element by element in unrolled loops: eight
// times 16 bits (CUDA 13.0). It does not split an integer.
template <class T, int kCount>
__device__ inline void store_whole(Pack<T, kCount>* to, const Pack<T, kCount>& pack) {
  if constexpr (sizeof(pack) == 16) {
    uint64_t halves[2];
    memcpy(halves, &pack, sizeof(halves));
    *reinterpret_cast<unsigned __int128*>(to) = static_cast<unsigned __int128>(halves[1]) << 64 | halves[0];
  } else {
    *to = pack;
  }
}
template <int kCount, class T>
__device__ inline void load_pack(const T* from, Wide<T> (&to)[kCount]) {
  const auto loaded = *reinterpret_cast<const Pack<T, kCount>*>(from);
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = widen(loaded.value[i]);
}
template <int kCount, class T>
__device__ inline void store_pack(T* to, const Wide<T> (&from)[kCount]) {
  Pack<T, kCount> stored;
#pragma unroll
  for (int i = 0; i < kCount; ++i) stored.value[i] = narrow<T>(from[i]);
  store_whole(reinterpret_cast<Pack<T, kCount>*>(to), stored);
}

template <class W>
__device__ inline W minus_infinity() {
  return static_cast<W>(-INFINITY);
}

// f(float{}), f(double{}), f(__half{}) or f(__nv_bfloat16{}); kUnsupported for other types. A build with
// TSR_FEW_TYPES has f32 and bf16, which stand for the others: these are the same templates.
template <class F>
Result<PreparedKernel> dispatch_float(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32: return f(float{});
    case DType::kBF16: return f(__nv_bfloat16{});
#ifdef TSR_FEW_TYPES
    default:
      return Status(StatusCode::kUnsupported,
                    format("dtype {}: this build has kernels for f32 and bf16 alone", to_text(dtype)));
#else
    case DType::kF64: return f(double{});
    case DType::kF16: return f(__half{});
    default:
      return Status(StatusCode::kUnsupported,
                    format("dtype {}: this kernel computes in f32, f64, f16 or bf16", to_text(dtype)));
#endif
  }
}

// For kernels that only move elements: f(an unsigned integer of the element's size).
template <class F>
Result<PreparedKernel> dispatch_element_size(DType dtype, F&& f) {
  const DTypeInfo& element = info(dtype);
  if (element.block_elements == 1) switch (element.block_bytes) {
      case 1: return f(uint8_t{});
      case 2: return f(uint16_t{});
      case 4: return f(uint32_t{});
      case 8: return f(uint64_t{});
      default: break;
    }
  return Status(StatusCode::kUnsupported,
                format("dtype {}: this kernel moves plain elements", to_text(dtype)));
}

// Grids depend on shapes alone, never on the device: the same bits on any of them.
inline constexpr int64_t kMostBlocks = 132 * 16;
inline int grid_for(int64_t items, int64_t per_block) {
  const int64_t blocks = (items + per_block - 1) / per_block;
  return static_cast<int>(blocks < 1 ? 1 : blocks > kMostBlocks ? kMostBlocks : blocks);
}

// make(S{}) for the type S that stores sums over elements of T: T, or Wide<T> where the sums stay wide.
template <class T, class Make>
auto with_sums_type(const KernelSpec& spec, Make make) {
  return spec.i64("wide") == 1 ? make(Wide<T>{}) : make(T{});
}

}  // namespace tessera::cuda
