// Sums over the rows of a matrix, in two stages: a chunk of the rows at a time into the workspace, then the
// chunks in order. Chunks depend on the shape alone, so that the same inputs give the same bits.
#pragma once

#include "runtime/backends/cuda/kernels/element.cuh"

namespace tessera::cuda {

// ColumnChunks: kSums sums a column, over `rows` rows and `cols` columns.
struct ColumnChunks {
  int64_t rows, cols, rows_per_chunk, chunks;

  ColumnChunks(int64_t rows, int64_t cols) : rows(rows), cols(cols) {
    constexpr int64_t kLeastRows = 32, kMostChunks = 256;
    rows_per_chunk = (rows + kMostChunks - 1) / kMostChunks;
    if (rows_per_chunk < kLeastRows) rows_per_chunk = kLeastRows;
    chunks = (rows + rows_per_chunk - 1) / rows_per_chunk;
    if (chunks < 1) chunks = 1;
  }
  template <class W>
  int64_t workspace_bytes(int sums) const {
    return chunks * cols * sums * static_cast<int64_t>(sizeof(W));
  }
};

// term(row, col, sums) adds its part to sums[kSums].
template <class W, int kSums, class Term>
__global__ void column_chunk_kernel(Term term, ColumnChunks shape, W* partial) {
  const int64_t col = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, chunk = blockIdx.y;
  if (col >= shape.cols) return;
  const int64_t begin = chunk * shape.rows_per_chunk;
  const int64_t end = begin + shape.rows_per_chunk < shape.rows ? begin + shape.rows_per_chunk : shape.rows;
  W sums[kSums] = {};
#pragma unroll 4
  for (int64_t row = begin; row < end; ++row) term(row, col, sums);
  for (int k = 0; k < kSums; ++k) partial[(k * shape.chunks + chunk) * shape.cols + col] = sums[k];
}

// The term of a plain sum of x [rows, cols].
template <class T>
struct ColumnSum {
  const T* x;
  int64_t cols;
  __device__ void operator()(int64_t row, int64_t c, Wide<T>* sums) const {
    sums[0] += widen(x[row * cols + c]);
  }
};

template <class T>
struct ColumnResults {
  T* out[3];  // as many as there are sums
};

// A block makes 32 columns, a warp every kTotalWarps-th chunk of them.
inline constexpr int kTotalWarps = 8;

template <class T, int kSums>
__global__ void __launch_bounds__(32 * kTotalWarps)
    column_total_kernel(const Wide<T>* partial, int64_t chunks, int64_t cols, ColumnResults<T> results) {
  __shared__ Wide<T> part[kSums][kTotalWarps][32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t col = int64_t{blockIdx.x} * 32 + lane;
  for (int k = 0; k < kSums; ++k) {
    Wide<T> sum = 0;
    if (col < cols)
#pragma unroll 8
      for (int64_t chunk = warp; chunk < chunks; chunk += kTotalWarps)
        sum += partial[(k * chunks + chunk) * cols + col];
    part[k][warp][lane] = sum;
  }
  __syncthreads();
  if (warp != 0 || col >= cols) return;
  for (int k = 0; k < kSums; ++k) {
    Wide<T> sum = part[k][0][lane];
    for (int other = 1; other < kTotalWarps; ++other) sum += part[k][other][lane];
    results.out[k][col] = narrow<T>(sum);
  }
}

// The sums of the workspace's [kSums][chunks][cols] over the chunks.
template <class T, int kSums>
void launch_column_totals(const LaunchArgs& args, int64_t chunks, int64_t cols,
                          const ColumnResults<T>& results) {
  column_total_kernel<T, kSums>
      <<<static_cast<unsigned>((cols + 31) / 32), 32 * kTotalWarps, 0, args.stream>>>(
          static_cast<const Wide<T>*>(args.workspace), chunks, cols, results);
}

template <class T, int kSums, class Term>
void launch_columns(const LaunchArgs& args, const ColumnChunks& shape, Term term,
                    const ColumnResults<T>& results) {
  if (shape.cols <= 0) return;
  constexpr int kThreads = 128;
  auto* partial = static_cast<Wide<T>*>(args.workspace);
  const auto across = static_cast<unsigned>((shape.cols + kThreads - 1) / kThreads);
  column_chunk_kernel<Wide<T>, kSums>
      <<<dim3(across, static_cast<unsigned>(shape.chunks)), kThreads, 0, args.stream>>>(term, shape, partial);
  launch_column_totals<T, kSums>(args, shape.chunks, shape.cols, results);
}

}  // namespace tessera::cuda
