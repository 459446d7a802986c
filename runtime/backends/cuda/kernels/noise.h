// Random operands for kernels that are timed: multiplying zeros takes less power, and so less time, than
// data.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "graph/base/dtype.h"

namespace tessera::cuda {

// `count` elements of f32, f64, f16, bf16, e4m3 or e5m2, uniform in [-1, 1), the same for the same seed.
void fill_with_noise(DType dtype, void* out, int64_t count, uint32_t seed, cudaStream_t stream);

}  // namespace tessera::cuda
