// Shared by the attention kernels: extents, the keys that a query sees, and a tile of rows in shared memory.
#pragma once

#include <cmath>

#include "runtime/backends/cuda/kernels/factor_index.cuh"
#include "runtime/backends/cuda/kernels/rows.cuh"

namespace tessera::cuda {

struct AttentionShape {
  int64_t B, T, H, S, KV, D, V;  // V: width of values and results
  double scale, softcap;         // softcap 0: none
  int64_t window;                // 0: none
  bool causal;
  FactorIndex t_index, s_index;

  __host__ __device__ int64_t group() const { return KV > 0 ? H / KV : 1; }
  __device__ int64_t query(int64_t b, int64_t t, int64_t h) const { return ((b * T + t) * H + h) * D; }
  __device__ int64_t key(int64_t b, int64_t s, int64_t h) const { return ((b * S + s) * KV + h) * D; }
  __device__ int64_t result(int64_t b, int64_t t, int64_t h) const { return ((b * T + t) * H + h) * V; }
  __device__ int64_t value(int64_t b, int64_t s, int64_t h) const { return ((b * S + s) * KV + h) * V; }
  // Number of keys, the first ones, that a query sees.
  __device__ int64_t keys_of(int64_t t) const {
    if (!causal) return S;
    const int64_t keys = s_index.count_before(t_index.to_global(t) + 1);
    return keys < S ? keys : S;
  }
  // For a window: the visible keys are [first_of, end_of). None for t beyond T.
  __device__ int64_t end_of(int64_t t) const {
    if (t >= T) return 0;
    return causal || window == 0 ? keys_of(t) : s_index.count_before(t_index.to_global(t) + window);
  }
  // Up to S; for t beyond T that of the last query.
  __device__ int64_t first_of(int64_t t) const {
    if (window == 0) return 0;
    return s_index.count_before(t_index.to_global(t < T ? t : T - 1) - window + 1);
  }
  // A score after its scale, and its slope once it is capped.
  template <class W>
  __device__ W capped(W score) const {
    const W cap = static_cast<W>(softcap);
    return softcap > 0 ? cap * tanh(score / cap) : score;
  }
  template <class W>
  __device__ W slope(W capped_score) const {
    const W share = softcap > 0 ? capped_score / static_cast<W>(softcap) : W(0);
    return W(1) - share * share;
  }
};

template <class T>
struct AttentionOperands {
  const T *q, *k, *v;
  T* out;
  Wide<T>* lse;                          // null where nobody wants it
  const int32_t *q_segment, *k_segment;  // [B, T], [B, S], or both null

  AttentionOperands(const LaunchArgs& args, bool has_lse, bool has_segments)
      : q(args.in<T>(0)),
        k(args.in<T>(1)),
        v(args.in<T>(2)),
        out(args.out<T>(0)),
        lse(has_lse ? args.out<Wide<T>>(1) : nullptr),
        q_segment(has_segments ? args.in<int32_t>(3) : nullptr),
        k_segment(has_segments ? args.in<int32_t>(4) : nullptr) {}
};

// From operands number `q`, `k` and `v`, for kernels that do all that the op may ask for.
inline AttentionShape attention_shape(const KernelSpec& spec, int q, int k, int v) {
  const auto query = spec.input_dims(q), key = spec.input_dims(k);
  AttentionShape shape{query[0], query[1], query[2], key[1], key[2], query[3], spec.input_dims(v)[3],
                       0,        0,        0,        false,  {},     {}};
  const double given = spec.f64("scale");
  shape.scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(shape.D > 1 ? shape.D : 1));
  shape.softcap = spec.f64("softcap");
  shape.window = spec.i64("window");
  shape.t_index = FactorIndex(spec.factor('t'));
  return shape;
}
// The shape for keys at global positions rather than places in a cache.
inline AttentionShape attention_shape_of_shard(const KernelSpec& spec, int q, int k, int v) {
  AttentionShape shape = attention_shape(spec, q, k, v);
  shape.causal = spec.i64("causal") == 1;
  shape.s_index = FactorIndex(spec.factor('s'));
  return shape;
}

// For kernels of `inputs` operands that know neither windows nor caps, nor values of another width than keys.
inline Status check_plain(const KernelSpec& spec, const AttentionShape& shape, int inputs) {
  const auto refuse = [](std::string_view what) {
    return Status(StatusCode::kUnsupported, format("{}: the plain kernel has them", what));
  };
  if (shape.window > 0) return refuse("windows");
  if (shape.softcap > 0) return refuse("capped scores");
  if (shape.V != shape.D) return refuse("values of another width than keys");
  if (spec.input_count() != inputs) return refuse("segments or the gradient of lse");
  return {};
}

// Rows of a tile are one element apart modulo the banks, so that 32 lanes read 32 rows without conflict.
inline constexpr int kAttentionTile = 32, kAttentionWarps = 8, kAttentionThreads = kAttentionWarps * 32;
inline constexpr int kRowsPerWarp = kAttentionTile / kAttentionWarps;
inline constexpr int kMostHead = 256, kColumnsPerLane = kMostHead / 32;
inline constexpr int64_t kMostGrid = int64_t{1} << 31;

// Shared memory of this many tiles, with rows of D and of V elements.
template <class W>
inline size_t tile_bytes(const AttentionShape& shape, int of_keys, int of_values) {
  return kAttentionTile * static_cast<size_t>(of_keys * (shape.D + 1) + of_values * (shape.V + 1)) * sizeof(W);
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

inline Status check_head(const AttentionShape& shape, int64_t most) {
  const int64_t width = shape.D > shape.V ? shape.D : shape.V;
  if (width <= most) return {};
  return Status(StatusCode::kUnsupported, format("heads of {} elements, at most {}", width, most));
}

}  // namespace tessera::cuda
