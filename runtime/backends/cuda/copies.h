// Copies of rows on a stream, between any two kinds of memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tessera::cuda {

// `in` null fills with zero bytes.
cudaError_t copy_rows(cudaStream_t stream, const void* in, void* out, int64_t rows, int64_t row_bytes,
                      int64_t in_stride_bytes, int64_t out_stride_bytes);

}  // namespace tessera::cuda
