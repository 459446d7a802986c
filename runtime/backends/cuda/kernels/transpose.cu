#include "runtime/backends/cuda/kernels/kernels.h"
#include "runtime/backends/cuda/kernels/strided.cuh"

namespace tessera::cuda {

namespace {

template <class T>
struct Gather {
  const T* x;
  T* y;
  StridedBox box;
  __device__ void operator()(int64_t i) const { y[i] = x[box.offset_of(i)]; }
};

// [batch, rows, cols] -> [batch, cols, rows] through shared memory, so that reads and writes are both
// contiguous.
constexpr int kTile = 32, kTileRows = 8;

template <class T>
__global__ void transpose_kernel(const T* x, T* y, int64_t batch, int64_t rows, int64_t cols) {
  __shared__ T tile[kTile][kTile + 1];
  const int64_t across = (cols + kTile - 1) / kTile, down = (rows + kTile - 1) / kTile;
  for (int64_t at = blockIdx.x; at < batch * across * down; at += gridDim.x) {
    const int64_t base = at / (across * down) * rows * cols;
    const int64_t row0 = at / across % down * kTile, col0 = at % across * kTile;
    for (int64_t r = threadIdx.y; r < kTile; r += kTileRows)
      if (row0 + r < rows && col0 + threadIdx.x < cols)
        tile[r][threadIdx.x] = x[base + (row0 + r) * cols + col0 + threadIdx.x];
    __syncthreads();
    for (int64_t c = threadIdx.y; c < kTile; c += kTileRows)
      if (col0 + c < cols && row0 + threadIdx.x < rows)
        y[base + (col0 + c) * rows + row0 + threadIdx.x] = tile[threadIdx.x][c];
    __syncthreads();
  }
}

}  // namespace

Result<PreparedKernel> prepare_transpose(const KernelSpec& spec) {
  return dispatch_element_size(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using T = decltype(zero);
    const auto dims = spec.input_dims(0), perm = spec.ints("perm");
    const int64_t elements = spec.output_elements(0);
    const size_t rank = dims.size();
    bool swaps_last = rank >= 2;
    for (size_t i = 0; i < rank; ++i) {
      const size_t same = i + 2 == rank ? i + 1 : i + 1 == rank ? i - 1 : i;
      swaps_last = swaps_last && perm[i] == static_cast<int64_t>(same);
    }
    if (swaps_last && elements > 0) {
      const int64_t rows = dims[rank - 2], cols = dims[rank - 1], batch = elements / rows / cols;
      return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                            const int64_t tiles =
                                batch * ((rows + kTile - 1) / kTile) * ((cols + kTile - 1) / kTile);
                            transpose_kernel<<<grid_for(tiles, 1), dim3(kTile, kTileRows), 0, args.stream>>>(
                                args.in<T>(0), args.out<T>(0), batch, rows, cols);
                          }));
    }
    int64_t strides[TSR_ABI_MAX_RANK];
    row_major_strides(dims, strides);
    StridedBox box;
    for (const int64_t dim : perm) box.add(dims[static_cast<size_t>(dim)], strides[dim]);
    return memory_bound(spec, make_kernel([=](const LaunchArgs& args) {
                          launch_each(args.stream, elements, Gather<T>{args.in<T>(0), args.out<T>(0), box});
                        }));
  });
}

}  // namespace tessera::cuda
