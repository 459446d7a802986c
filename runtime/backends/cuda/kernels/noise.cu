#include "runtime/backends/cuda/kernels/element.cuh"
#include "runtime/backends/cuda/kernels/fp8.cuh"
#include "runtime/backends/cuda/kernels/noise.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

template <class W>
__device__ inline W noise_at(int64_t i, uint32_t seed) {
  uint32_t x = static_cast<uint32_t>(i) * 0x9e3779b9u + seed;
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  x ^= x >> 16;
  return static_cast<W>(static_cast<int32_t>(x)) * static_cast<W>(1.0 / 2147483648.0);
}

template <class T>
struct Noise {
  T* out;
  uint32_t seed;
  __device__ void operator()(int64_t i) const { out[i] = narrow<T>(noise_at<Wide<T>>(i, seed)); }
};

struct NoiseCodes {
  uint8_t* out;
  uint32_t seed;
  __nv_fp8_interpretation_t format;
  __device__ void operator()(int64_t i) const { out[i] = fp8_code(noise_at<float>(i, seed), format); }
};

}  // namespace

void fill_with_noise(DType dtype, void* out, int64_t count, uint32_t seed, cudaStream_t stream) {
  const auto as = [&](auto zero) {
    using T = decltype(zero);
    launch_each(stream, count, Noise<T>{static_cast<T*>(out), seed});
  };
  if (is_fp8(dtype))
    return launch_each(stream, count,
                       NoiseCodes{static_cast<uint8_t*>(out), seed, fp8_interpretation(dtype)});
  switch (dtype) {
    case DType::kF64: return as(double{});
    case DType::kF16: return as(__half{});
    case DType::kBF16: return as(__nv_bfloat16{});
    default: return as(float{});
  }
}

}  // namespace tessera::cuda
