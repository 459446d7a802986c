// A tiled matmul on the plain cores, for every type, layout and extent: the reference for cuBLASLt, and the
// fallback of experts. One thread an element sums k in ascending order.
#pragma once

#include <type_traits>

#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

// C[m, n] = sum over k of A[m, k] B[k, n], one matmul a batch; C is row-major. Strides are in elements.
struct GemmShape {
  int64_t batches, M, N, K;
  int64_t a_batch, a_m, a_k;
  int64_t b_batch, b_k, b_n;
};

// WholeGemm: every row and term takes part, and a result is stored as it is. Other rules derive from it.
struct WholeGemm {
  __device__ bool has_row(int64_t, int64_t) const { return true; }
  __device__ bool has_term(int64_t, int64_t) const { return true; }
};

inline constexpr int kGemmTile = 64, kGemmDepth = 16, kGemmSide = 16, kGemmEach = kGemmTile / kGemmSide;

// rules.has_row(batch, m): else the row is 0; rules.has_term(batch, k): else the term is left out.
// store(batch, m, n, sum) writes an element.
// A and B may be of two types that are computed in one.
template <class A, class B, class Rules, class Store>
__global__ void __launch_bounds__(kGemmSide* kGemmSide)
    gemm_kernel(GemmShape shape, const A* a, const B* b, Rules rules, Store store) {
  using W = Wide<A>;
  static_assert(std::is_same_v<W, Wide<B>>);
  __shared__ W a_tile[kGemmDepth][kGemmTile + 1], b_tile[kGemmDepth][kGemmTile + 1];
  const int64_t across = (shape.N + kGemmTile - 1) / kGemmTile, down = (shape.M + kGemmTile - 1) / kGemmTile;
  const int64_t batch = blockIdx.x / (across * down);
  const int64_t m0 = blockIdx.x / across % down * kGemmTile, n0 = blockIdx.x % across * kGemmTile;
  a += batch * shape.a_batch;
  b += batch * shape.b_batch;
  const int row = threadIdx.x / kGemmSide, col = threadIdx.x % kGemmSide;
  W sum[kGemmEach][kGemmEach] = {};
  for (int64_t k0 = 0; k0 < shape.K; k0 += kGemmDepth) {
    for (int i = threadIdx.x; i < kGemmDepth * kGemmTile; i += kGemmSide * kGemmSide) {
      // Adjacent threads read along the contiguous dim.
      const int a_k = shape.a_k == 1 ? i % kGemmDepth : i / kGemmTile,
                a_m = shape.a_k == 1 ? i / kGemmDepth : i % kGemmTile;
      const int b_k = shape.b_n == 1 ? i / kGemmTile : i % kGemmDepth,
                b_n = shape.b_n == 1 ? i % kGemmTile : i / kGemmDepth;
      const int64_t m = m0 + a_m, n = n0 + b_n, ka = k0 + a_k, kb = k0 + b_k;
      const bool has_a = m < shape.M && ka < shape.K && rules.has_row(batch, m) && rules.has_term(batch, ka);
      const bool has_b = n < shape.N && kb < shape.K && rules.has_term(batch, kb);
      a_tile[a_k][a_m] = has_a ? widen(a[m * shape.a_m + ka * shape.a_k]) : W(0);
      b_tile[b_k][b_n] = has_b ? widen(b[kb * shape.b_k + n * shape.b_n]) : W(0);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kGemmDepth; ++k)
#pragma unroll
      for (int i = 0; i < kGemmEach; ++i)
#pragma unroll
        for (int j = 0; j < kGemmEach; ++j)
          sum[i][j] += a_tile[k][row + i * kGemmSide] * b_tile[k][col + j * kGemmSide];
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kGemmEach; ++i)
#pragma unroll
    for (int j = 0; j < kGemmEach; ++j) {
      const int64_t m = m0 + row + i * kGemmSide, n = n0 + col + j * kGemmSide;
      // Rows that do not take part are 0 whatever the other operand holds, NaN included.
      if (m < shape.M && n < shape.N) store(batch, m, n, rules.has_row(batch, m) ? sum[i][j] : W(0));
    }
}

inline int64_t gemm_blocks(const GemmShape& shape) {
  return shape.batches * ((shape.N + kGemmTile - 1) / kGemmTile) * ((shape.M + kGemmTile - 1) / kGemmTile);
}

template <class A, class B, class Rules, class Store>
void launch_gemm(cudaStream_t stream, const GemmShape& shape, const A* a, const B* b, Rules rules,
                 Store store) {
  const int64_t blocks = gemm_blocks(shape);
  if (blocks > 0)
    gemm_kernel<<<static_cast<unsigned>(blocks), kGemmSide * kGemmSide, 0, stream>>>(shape, a, b, rules,
                                                                                     store);
}

inline PreparedKernel gemm_prepared(const KernelSpec& spec, std::unique_ptr<Kernel> kernel,
                                    const GemmShape& shape) {
  PreparedKernel prepared = memory_bound(spec, std::move(kernel));
  // Tiles are computed whole.
  prepared.flops = 2.0 * double(gemm_blocks(shape)) * kGemmTile * kGemmTile * double(shape.K);
  prepared.efficiency = 0.01;  // of the tensor cores' peak
  return prepared;
}

}  // namespace tessera::cuda
