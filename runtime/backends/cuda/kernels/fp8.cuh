// Numbers of 8 bits on the device (formats: graph/base/fp8.h).
#pragma once

#include <cuda_fp8.h>

#include <type_traits>

#include "graph/base/fp8.h"
#include "runtime/backends/cuda/kernels/element.cuh"

namespace tessera::cuda {

// The value of a code, in `W`.
template <__nv_fp8_interpretation_t kFormat, class W>
struct Code {
  uint8_t bits;
};
template <__nv_fp8_interpretation_t kFormat, class W>
struct WideOf<Code<kFormat, W>> {
  using type = W;
};
template <__nv_fp8_interpretation_t kFormat, class W>
__device__ inline W widen(Code<kFormat, W> x) {
  return static_cast<W>(__half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, kFormat))));
}

// Nearest, ties to even, saturating.
__device__ inline uint8_t fp8_code(float x, __nv_fp8_interpretation_t format) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, format);
}
__device__ inline uint8_t fp8_code(double x, __nv_fp8_interpretation_t format) {
  return __nv_cvt_double_to_fp8(x, __NV_SATFINITE, format);
}

inline __nv_fp8_interpretation_t fp8_interpretation(DType dtype) {
  return dtype == DType::kE4M3 ? __NV_E4M3 : __NV_E5M2;
}

// f(Code<kFormat, W>{}) for the format of `dtype`.
template <class W, class F>
Result<PreparedKernel> dispatch_fp8(DType dtype, F&& f) {
  if (dtype == DType::kE4M3) return f(Code<__NV_E4M3, W>{});
  if (dtype == DType::kE5M2) return f(Code<__NV_E5M2, W>{});
  return Status(StatusCode::kUnsupported, format("dtype {}: this kernel reads e4m3 or e5m2", to_text(dtype)));
}

}  // namespace tessera::cuda
