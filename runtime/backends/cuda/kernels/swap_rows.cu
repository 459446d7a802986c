#include "runtime/backends/cuda/kernels/rows.cuh"
#include "runtime/backends/cuda/kernels/swap_rows.h"

namespace tessera::cuda {

namespace {

// One value an attention row: too few to be worth staging in shared memory.
struct SwapRows {
  const float* from;
  float* to;
  int64_t rows, cols;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i % rows, col = i / rows % cols, batch = i / (rows * cols);
    to[i] = from[(batch * rows + row) * cols + col];
  }
};

}  // namespace

void swap_rows(const float* from, float* to, int64_t batch, int64_t rows, int64_t cols, cudaStream_t stream) {
  launch_each(stream, batch * rows * cols, SwapRows{from, to, rows, cols});
}

}  // namespace tessera::cuda
