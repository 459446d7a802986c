// MatvecPlan: one launch of products of the same few rows with several matrices, with what comes before and
// after them: the norm of those rows, which every block makes for itself, and what is done to the results
// element by element or pair by pair. Plain data, and the parameter of the kernel (kernels/matvec.cuh).
#pragma once

#include <cstdint>
#include <span>

#include "runtime/backends/cuda/cuda_kernel.h"
#include "runtime/backends/cuda/kernels/decode_step.h"

namespace tessera::cuda {

// How the results of a part are paired before they are stored again.
enum class Pairing : int32_t { kNone, kGated, kRope };

// A matrix [N, K], or two of the same shape of which results n meet (kGated). Addresses are null for what is
// not there, or is not stored since a later step of the launch stores over it.
struct MatvecPart {
  int64_t N;
  const void *w[2], *scale[2], *bias[2];
  const void* summand;  // [M, N]: added before anything is rounded
  void* y[2];           // [M, N], biases added
  void* pre;            // before the activation
  MatmulActivation activation;
  // y of a pair, turned (kRope, heads of D) or swiglu(y[0], y[1]) (kGated), or `map` of y.
  Pairing pairing;
  MapKind map;
  bool has_map;
  const int32_t* positions;  // [M]
  int64_t D;
  double log_theta, sign;
  bool is_interleaved;
  void* mapped;
  // What is added to that, rounded before and after.
  const void* addend;
  void* added;
  void* cache;  // [B, S, N]: where the rows go in the end
  int64_t S;
  int32_t first_group;  // of rows, of this part

  // Results, or pairs of results.
  constexpr int32_t items() const { return static_cast<int32_t>(pairing == Pairing::kRope ? N / 2 : N); }
};

struct MatvecNorm {
  bool is_there, is_layer_norm;
  const void *x, *w, *b;
  void *y, *mean, *rstd;
  double eps, inverse;  // 1 / K
};

struct MatvecPlan {
  static constexpr int kMostParts = 4;
  DType dtype, weight;
  int64_t M, K, row_bytes, groups, group;
  const void* x;  // [M, K]; where there is a norm, what it makes
  MatvecNorm norm;
  int32_t parts, row_groups;
  MatvecPart part[kMostParts];
  const int32_t *start, *length;  // [B], of cache rows: M = B T
  int64_t T;
  const void* next;  // the matrix that the next such launch reads first, to be fetched ahead; null for none
  int64_t next_bytes;
};

// One product by itself.
MatvecPlan plan_product(const DecodeStep& step, const LaunchArgs& args);

// The first of `coming`, and as many after it as may be one launch with it.
Fused fuse_decode_steps(std::span<const ComingLaunch> coming);

// Rows of M K elements that a block keeps in shared memory, beside what it always has there (48 KiB in all).
inline constexpr int64_t kMostNormBytes = 40 << 10;
// Norms are made by a block of so many threads, or a warp a row, as launch_rows would: 16 bytes a thread at a
// time.
inline constexpr int64_t kMostNormPacks = 8192;

}  // namespace tessera::cuda
