// Shared by the attention kernels: extents, the keys that a query sees, and a tile of rows in shared memory.
#pragma once

#include <cmath>

#include "runtime/backends/cuda/kernels/factor_index.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

struct AttentionShape {
  int64_t B, T, H, S, KV, D;
  double scale;
  bool causal;
  FactorIndex t_index, s_index;

  __host__ __device__ int64_t group() const { return KV > 0 ? H / KV : 1; }
  __device__ int64_t query(int64_t b, int64_t t, int64_t h) const { return ((b * T + t) * H + h) * D; }
  __device__ int64_t key(int64_t b, int64_t s, int64_t h) const { return ((b * S + s) * KV + h) * D; }
  // Number of keys, the first ones, that a query sees.
  __device__ int64_t keys_of(int64_t t) const {
    if (!causal) return S;
    const int64_t keys = s_index.count_before(t_index.to_global(t) + 1);
    return keys < S ? keys : S;
  }
  // The same over a cache, in which sequence b has `start[b]` keys before its first query. `start` is
  // untrusted, and null without a cache. None for t beyond T.
  __device__ int64_t keys_of(int64_t t, int64_t b, const int32_t* start) const {
    if (t >= T) return 0;
    if (start == nullptr) return keys_of(t);
    const int64_t keys = start[b] + t_index.to_global(t) + 1;
    return keys < 0 ? 0 : keys < S ? keys : S;
  }
};

template <class T>
struct AttentionOperands {
  const T *q, *k, *v;
  const int32_t* start;  // of cached attention; else null
  T* out;
  Wide<T>* lse;  // null where nobody wants it
};

inline AttentionShape attention_shape(const KernelSpec& spec, int q, int k) {
  const auto query = spec.input_dims(q), key = spec.input_dims(k);
  AttentionShape shape{query[0], query[1], query[2], key[1], key[2], query[3], 0, false, {}, {}};
  const double given = spec.f64("scale");
  shape.scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(shape.D > 1 ? shape.D : 1));
  return shape;
}

// Rows of a tile are one element apart modulo the banks, so that 32 lanes read 32 rows without conflict.
inline constexpr int kAttentionTile = 32, kAttentionWarps = 8, kAttentionThreads = kAttentionWarps * 32;
inline constexpr int kRowsPerWarp = kAttentionTile / kAttentionWarps;
inline constexpr int kMostHead = 256, kColumnsPerLane = kMostHead / 32;
inline constexpr int64_t kMostGrid = int64_t{1} << 31;

template <class W>
inline size_t tile_bytes(int64_t D, int tiles) {
  return static_cast<size_t>(tiles) * kAttentionTile * static_cast<size_t>(D + 1) * sizeof(W);
}

// tile[row] <- rows first..first+31 of a tensor whose rows are `stride` apart; 0 beyond `count`. Called by
// all threads of the block.
template <class T>
__device__ void load_tile(Wide<T>* tile, const T* from, int64_t first, int64_t count, int64_t stride,
                          int64_t D) {
  const int width = static_cast<int>(D);
  for (int i = threadIdx.x; i < kAttentionTile * width; i += kAttentionThreads) {
    const int row = i / width, d = i % width;
    tile[row * (width + 1) + d] = first + row < count ? widen(from[(first + row) * stride + d]) : Wide<T>(0);
  }
}

template <class W>
__device__ W row_dot(const W* a, const W* b, int64_t D) {
  W sum = 0;
#pragma unroll 4
  for (int64_t d = 0; d < D; ++d) sum += a[d] * b[d];
  return sum;
}

// Requests shared memory beyond 48 KiB; declines when the device has less. The limit belongs to the function,
// which kernels of many shapes share: it is always raised to the device's maximum.
template <class KernelFunction>
Status allow_shared(KernelFunction kernel, size_t bytes) {
  int device = 0, most = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess ||
      bytes > static_cast<size_t>(most)) {
    (void)cudaGetLastError();
    return Status(StatusCode::kUnsupported, format("{} bytes of shared memory a block, the device has {}",
                                                   static_cast<uint64_t>(bytes), most));
  }
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most) != cudaSuccess) {
    (void)cudaGetLastError();
    return Status(StatusCode::kUnsupported, "shared memory cannot be set aside for this kernel");
  }
  return {};
}

inline Status check_head(int64_t D) {
  if (D <= kMostHead) return {};
  return Status(StatusCode::kUnsupported, format("heads of {} elements, at most {}", D, kMostHead));
}

}  // namespace tessera::cuda
