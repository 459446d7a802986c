// GemvPlan: one launch of matmuls of the same few rows with several matrices, and of the steps around them:
// the norm of those rows, which every block computes for itself, and element-wise or pairwise steps on the
// results. Plain data, and the parameter of the kernel (kernels/gemv.cuh).
#pragma once

#include <cstdint>
#include <span>

#include "runtime/backends/cuda/cuda_kernel.h"
#include "runtime/backends/cuda/kernels/decode_step.h"

namespace tessera::cuda {

// Pairing of a part's results before they are stored.
enum class Pairing : int32_t { kNone, kGated, kRope };

// A matrix [N, K], or two of the same shape whose results n are combined (kGated). Addresses are null for
// absent operands, and for results that a later step of the launch overwrites.
struct GemvPart {
  int64_t N;
  const void *w[2], *bias[2];
  const void* summand;  // [M, N]: added before anything is rounded
  void* y[2];           // [M, N], biases added
  void* pre;            // before the activation
  MatmulActivation activation;
  // y of a pair, rotated (kRope, heads of D) or swiglu(y[0], y[1]) (kGated), or `map` of y.
  Pairing pairing;
  MapKind map;
  bool has_map;
  const int32_t* positions;  // [M]
  int64_t D;
  double log_theta, sign;
  bool is_interleaved;
  void* mapped;
  // Added to that result, rounded before and after.
  const void* addend;
  void* added;
  void* pages;  // [slots, N]: the rows are stored there last
  int64_t slots;
  int32_t first_group;  // of rows, of this part

  // Results, or pairs of results.
  constexpr int32_t items() const { return static_cast<int32_t>(pairing == Pairing::kRope ? N / 2 : N); }
};

struct GemvNorm {
  bool is_there, is_layer_norm;
  const void *x, *w, *b;
  void *y, *mean, *rstd;
  double eps, inverse;  // 1 / K
};

struct GemvPlan {
  static constexpr int kMostParts = 4;
  DType dtype, weight;
  int64_t M, K, row_bytes;
  const void* x;  // [M, K]; with a norm, its result
  GemvNorm norm;
  int32_t parts, row_groups;
  GemvPart part[kMostParts];
  const int32_t* slot;  // [M], of rows in pages
  const void* next;  // first matrix of the next such launch, to be prefetched; null for none
  int64_t next_bytes;
};

// A plan of one matmul.
GemvPlan plan_product(const DecodeStep& step, const LaunchArgs& args);

// Fuses the first of `coming` with as many after it as fit one launch.
Fused fuse_decode_steps(std::span<const ComingLaunch> coming);

// Norm rows, M K elements, that a block keeps in shared memory, in addition to what it always has there (48
// KiB in all).
inline constexpr int64_t kMostNormBytes = 40 << 10;
// A block, or a warp a row, computes norms with as many threads as launch_rows would: 16 bytes a thread at a
// time.
inline constexpr int64_t kMostNormPacks = 8192;

}  // namespace tessera::cuda
