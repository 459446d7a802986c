#include "runtime/backends/cuda/kernels/element.cuh"
#include "runtime/backends/cuda/kernels/noise.h"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

namespace {

template <class T>
struct Noise {
  T* out;
  uint32_t seed;
  __device__ void operator()(int64_t i) const {
    uint32_t x = static_cast<uint32_t>(i) * 0x9e3779b9u + seed;
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    x ^= x >> 16;
    out[i] =
        narrow<T>(static_cast<Wide<T>>(static_cast<int32_t>(x)) * static_cast<Wide<T>>(1.0 / 2147483648.0));
  }
};

}  // namespace

void fill_with_noise(DType dtype, void* out, int64_t count, uint32_t seed, cudaStream_t stream) {
  const auto as = [&](auto zero) {
    using T = decltype(zero);
    launch_each(stream, count, Noise<T>{static_cast<T*>(out), seed});
  };
  switch (dtype) {
    case DType::kF64: return as(double{});
    case DType::kF16: return as(__half{});
    case DType::kBF16: return as(__nv_bfloat16{});
    default: return as(float{});
  }
}

}  // namespace tessera::cuda
