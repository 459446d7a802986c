#include "runtime/backends/cuda/copies.h"

namespace tessera::cuda {

namespace {

// Largest pitch that the driver takes (cudaDevAttrMaxPitch).
constexpr int64_t kMostPitch = (int64_t{1} << 31) - 1;

}  // namespace

cudaError_t copy_rows(cudaStream_t stream, const void* in, void* out, int64_t rows, int64_t row_bytes,
                      int64_t in_stride_bytes, int64_t out_stride_bytes) {
  if (rows <= 0 || row_bytes <= 0) return cudaSuccess;
  if (rows > 1 && row_bytes == out_stride_bytes && (in == nullptr || row_bytes == in_stride_bytes)) {
    row_bytes *= rows;
    rows = 1;
  }
  const auto width = static_cast<size_t>(row_bytes);
  if (rows == 1)
    return in == nullptr ? cudaMemsetAsync(out, 0, width, stream)
                         : cudaMemcpyAsync(out, in, width, cudaMemcpyDefault, stream);
  // Pitches are at least a row wide; rows that overlap or repeat (stride 0) are copied one by one.
  const bool pitched = out_stride_bytes >= row_bytes && out_stride_bytes <= kMostPitch &&
                       (in == nullptr || (in_stride_bytes >= row_bytes && in_stride_bytes <= kMostPitch));
  if (pitched) {
    const auto pitch = static_cast<size_t>(out_stride_bytes), height = static_cast<size_t>(rows);
    return in == nullptr ? cudaMemset2DAsync(out, pitch, 0, width, height, stream)
                         : cudaMemcpy2DAsync(out, pitch, in, static_cast<size_t>(in_stride_bytes), width,
                                             height, cudaMemcpyDefault, stream);
  }
  for (int64_t row = 0; row < rows; ++row) {
    char* to = static_cast<char*>(out) + row * out_stride_bytes;
    const cudaError_t error = in == nullptr
                                  ? cudaMemsetAsync(to, 0, width, stream)
                                  : cudaMemcpyAsync(to, static_cast<const char*>(in) + row * in_stride_bytes,
                                                    width, cudaMemcpyDefault, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace tessera::cuda
