// Kernels over the rows of a tensor: a team of threads (a warp, or a block) computes a row. Sums form a tree
// whose shape depends on the length of the row alone, so that the same inputs give the same bits.
#pragma once

#include "runtime/backends/cuda/kernels/element.cuh"

namespace tessera::cuda {

// An operand [..., C] as rows x cols. A scalar is one row of one.
struct Rows {
  int64_t count = 1, cols = 1;
};
inline Rows rows_of(std::span<const int64_t> dims) {
  Rows rows;
  for (size_t i = 0; i + 1 < dims.size(); ++i) rows.count *= dims[i];
  if (!dims.empty()) rows.cols = dims.back();
  return rows;
}

struct Plus {
  template <class W>
  __device__ W operator()(W a, W b) const {
    return a + b;
  }
};
// Maximum in which a NaN on either side wins.
struct Larger {
  template <class W>
  __device__ W operator()(W a, W b) const {
    return b > a || b != b ? b : a;
  }
};

template <int kThreads>
struct Team {
  static constexpr int size = kThreads;
  int rank;

  // Reduces one value a thread; every thread gets the result, the same bits in all of them. Called by the
  // whole team. It is also a barrier: memory read or written before it may be written or read after it.
  template <class W, class Op>
  __device__ W reduce(W value, Op op) const {
    if constexpr (kThreads == 32) __syncwarp();  // shuffles order no memory
#pragma unroll
    for (int lane = 16; lane > 0; lane /= 2) value = op(value, __shfl_xor_sync(0xffffffffu, value, lane));
    if constexpr (kThreads > 32) {
      __shared__ W partial[kThreads / 32];
      if (rank % 32 == 0) partial[rank / 32] = value;
      __syncthreads();
      value = partial[0];
#pragma unroll
      for (int warp = 1; warp < kThreads / 32; ++warp) value = op(value, partial[warp]);
      __syncthreads();  // before the next reduction writes to `partial`
    }
    return value;
  }
  template <class W>
  __device__ W sum(W value) const {
    return reduce(value, Plus{});
  }
  template <class W>
  __device__ W max(W value) const {
    return reduce(value, Larger{});
  }
  // body(c) for the columns of this thread.
  template <class Body>
  __device__ void each(int64_t cols, Body&& body) const {
    for (int64_t c = rank; c < cols; c += kThreads) body(c);
  }
  // body(c) for the first of every kVec columns of this thread; cols is a multiple of kVec.
  template <int kVec, class Body>
  __device__ void packs(int64_t cols, Body&& body) const {
    for (int64_t c = int64_t{rank} * kVec; c < cols; c += int64_t{kThreads} * kVec) body(c);
  }
};

// The launch bound keeps a block of 1024 within the registers of a multiprocessor.
template <int kThreads, class F>
__global__ void __launch_bounds__(kThreads == 32 ? 256 : kThreads) rows_kernel(F f, int64_t rows) {
  constexpr int kTeams = kThreads == 32 ? 8 : 1;
  const Team<kThreads> team{static_cast<int>(threadIdx.x) % kThreads};
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kTeams + threadIdx.x / kThreads;
  for (int64_t row = first; row < rows; row += static_cast<int64_t>(gridDim.x) * kTeams) f(team, row);
}

// f(team, row) for every row, by teams of kThreads.
template <int kThreads, class F>
void launch_teams(cudaStream_t stream, int64_t rows, F f) {
  constexpr int64_t kGrid = int64_t{1} << 20, kTeams = kThreads == 32 ? 8 : 1;
  if (rows <= 0) return;
  const int64_t blocks = (rows + kTeams - 1) / kTeams;
  rows_kernel<kThreads>
      <<<static_cast<unsigned>(blocks < kGrid ? blocks : kGrid), kThreads * kTeams, 0, stream>>>(f, rows);
}

// The same; `cols`, the work in a row, decides the size of the team.
template <class F>
void launch_rows(cudaStream_t stream, int64_t rows, int64_t cols, F f) {
  if (cols <= 256)
    launch_teams<32>(stream, rows, f);
  else if (cols <= 8192)
    launch_teams<256>(stream, rows, f);
  else
    launch_teams<1024>(stream, rows, f);
}

// A kernel over rows: `make(args)` gives f(team, row).
template <class Make>
PreparedKernel by_rows(const KernelSpec& spec, int64_t rows, int64_t cols, Make make) {
  return memory_bound(
      spec, make_kernel([=](const LaunchArgs& args) { launch_rows(args.stream, rows, cols, make(args)); }));
}

// A kernel over rows with 16 bytes at a time where rows and addresses allow it: `make(args, kVec)` gives f
// for packs of kVec elements, a std::integral_constant, of T.
template <class T, class Make>
PreparedKernel by_packed_rows(const KernelSpec& spec, int64_t rows, int64_t cols, Make make) {
  constexpr int kVec = 16 / static_cast<int>(sizeof(T));
  auto plain = make_kernel([=](const LaunchArgs& args) {
    launch_rows(args.stream, rows, cols, make(args, std::integral_constant<int, 1>{}));
  });
  if (cols % kVec != 0) return memory_bound(spec, std::move(plain));
  auto packed = make_kernel([=](const LaunchArgs& args) {
    launch_rows(args.stream, rows, cols / kVec, make(args, std::integral_constant<int, kVec>{}));
  });
  return memory_bound(spec, where_aligned(spec, std::move(packed), std::move(plain)));
}

template <class F>
__global__ void each_kernel(F f, int64_t count) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) f(i);
}

// f(i) for 0..count-1, a thread each.
template <class F>
void launch_each(cudaStream_t stream, int64_t count, F f) {
  if (count <= 0) return;
  constexpr int kThreads = 128;
  each_kernel<<<grid_for(count, kThreads), kThreads, 0, stream>>>(f, count);
}

}  // namespace tessera::cuda
