// swap_rows: exchanges two dims of f32, since cuDNN orders rows and heads differently from the op.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tessera::cuda {

// from [batch, rows, cols] -> to [batch, cols, rows] of f32.
void swap_rows(const float* from, float* to, int64_t batch, int64_t rows, int64_t cols, cudaStream_t stream);

}  // namespace tessera::cuda
