// Shared by the attention kernels on tensor cores: tiles of rows in shared memory, and matmuls of a warp's 16
// rows with them. A block has 8 warps; elements are f16 or bf16, sums f32, heads at most kD wide, a multiple
// of 8.
#pragma once

#include "runtime/backends/cuda/kernels/attention.cuh"
#include "runtime/backends/cuda/kernels/mma.cuh"

namespace tessera::cuda {

inline constexpr int kMmaWarps = 8, kMmaThreads = kMmaWarps * 32, kMmaRows = kMmaWarps * 16;
inline constexpr float kLog2E = 1.4426950408889634f;

// Rows are kD elements apart. Their pieces of 16 bytes are permuted by the row, so that the 8 rows of a
// matrix, at one column, are in different banks.
template <int kD>
__device__ inline int tile_offset(int row, int piece) {
  return row * kD + (piece ^ (row & 7)) * 8;
}

// tile[row] <- rows first..first+kRows-1 of a tensor whose rows are `stride` apart; zeros beyond `count` rows
// and D columns. Called by all threads of the block; complete after copy_async_wait and a barrier.
template <class T, int kD, int kRows>
__device__ inline void load_rows(T* tile, const T* from, int64_t first, int64_t count, int64_t stride,
                                 int D) {
  constexpr int kPieces = kD / 8;
#pragma unroll
  for (int i = threadIdx.x; i < kRows * kPieces; i += kMmaThreads) {
    const int row = i / kPieces, piece = i % kPieces;
    const bool there = first + row < count && piece * 8 < D;
    copy_async(tile + tile_offset<kD>(row, piece), there ? from + (first + row) * stride + piece * 8 : from,
               there);
  }
}

// The 16 rows of this warp at columns 16k..16k+15, as a left operand.
template <class T, int kD>
__device__ inline void load_left(uint32_t (&a)[4], const T* tile, int row0, int k) {
  const int lane = threadIdx.x % 32;
  load_matrices(a, tile + tile_offset<kD>(row0 + lane % 16, k * 2 + lane / 16));
}

// d[n] += left (columns 16k..) times the tile's rows, transposed: rows of the tile are columns of the result.
template <class T, int kD, int kCols>
__device__ inline void multiply_by_rows(float (&d)[kCols / 8][4], const uint32_t (&left)[4], const T* tile,
                                        int k) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < kCols / 16; ++n) {
    uint32_t b[4];
    load_matrices(b, tile + tile_offset<kD>(n * 16 + lane / 16 * 8 + lane % 8, k * 2 + lane / 8 % 2));
    mma<T>(d[2 * n], left, b[0], b[1]);
    mma<T>(d[2 * n + 1], left, b[2], b[3]);
  }
}

// d += p times the tile, whose rows correspond to the columns of p. p is a matmul's result, rounded to T.
template <class T, int kD, int kInner>
__device__ inline void multiply_by_tile(float (&d)[kD / 8][4], const float (&p)[kInner / 8][4],
                                        const T* tile) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < kInner / 16; ++k) {
    const uint32_t left[4] = {pack_pair<T>(p[2 * k][0], p[2 * k][1]), pack_pair<T>(p[2 * k][2], p[2 * k][3]),
                              pack_pair<T>(p[2 * k + 1][0], p[2 * k + 1][1]),
                              pack_pair<T>(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
    for (int n = 0; n < kD / 16; ++n) {
      uint32_t b[4];
      load_matrices_transposed(
          b, tile + tile_offset<kD>(k * 16 + lane / 8 % 2 * 8 + lane % 8, n * 2 + lane / 16));
      mma<T>(d[2 * n], left, b[0], b[1]);
      mma<T>(d[2 * n + 1], left, b[2], b[3]);
    }
  }
}

// Stores rows g and g + 8 of a warp's result to rows `at[0]` and `at[1]` of a tensor; null for none.
template <class T, int kD>
__device__ inline void store_rows(const float (&d)[kD / 8][4], T* const (&at)[2], const float (&factor)[2],
                                  int D) {
  const int pair = threadIdx.x % 4 * 2;
#pragma unroll
  for (int n = 0; n < kD / 8; ++n)
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (at[r] != nullptr && n * 8 < D)
        *reinterpret_cast<uint32_t*>(at[r] + n * 8 + pair) =
            pack_pair<T>(d[n][2 * r] * factor[r], d[n][2 * r + 1] * factor[r]);
}

// Maximum over the four lanes that hold a row.
__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// f(T{}, width) for the types and heads these kernels take; width is a constant of 64 or 128.
template <class F>
Result<PreparedKernel> dispatch_mma(DType dtype, const AttentionShape& shape, F&& f) {
  if (dtype != DType::kF16 && dtype != DType::kBF16)
    return Status(StatusCode::kUnsupported, "the tensor cores take f16 and bf16");
#ifdef TSR_FEW_TYPES
  if (dtype == DType::kF16) return Status(StatusCode::kUnsupported, "this build has kernels for bf16 alone");
#endif
  if (shape.D < 8 || shape.D > 128 || shape.D % 8 != 0)
    return Status(StatusCode::kUnsupported, format("heads of {}: multiples of 8 up to 128", shape.D));
  if (!(shape.scale > 0)) return Status(StatusCode::kUnsupported, "a scale that is not above 0");
  if (shape.S > INT32_MAX) return Status(StatusCode::kUnsupported, format("{} keys", shape.S));
  const auto widths = [&](auto zero) {
    return shape.D <= 64 ? f(zero, std::integral_constant<int, 64>{})
                         : f(zero, std::integral_constant<int, 128>{});
  };
#ifndef TSR_FEW_TYPES
  if (dtype == DType::kF16) return widths(__half{});
#endif
  return widths(__nv_bfloat16{});
}

}  // namespace tessera::cuda
