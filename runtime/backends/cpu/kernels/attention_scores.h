// Shared by the reference kernels of attention: extents, and the score of a query and a key in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "runtime/backends/cpu/cpu_kernel.h"
#include "runtime/backends/cpu/kernels/attention_mask.h"

namespace tessera::cpu {

inline constexpr double kUnseen = -std::numeric_limits<double>::infinity();
inline constexpr int64_t kHeadBlock =
    128;  // of a row that is summed at a time; wider heads repeat the scores

// Rows of queries and keys have D elements, those of values and results V.
struct AttentionExtents {
  int64_t B, T, H, S, KV, D, V;

  static AttentionExtents from_spec(const KernelSpec& spec, int q, int k, int v) {
    const auto query = spec.input_dims(q), key = spec.input_dims(k);
    return {query[0], query[1], query[2], key[1], key[2], query[3], spec.input_dims(v)[3]};
  }
  int64_t group() const { return KV > 0 ? H / KV : 1; }
  int64_t queries() const { return B * T * H; }
  // The row of k and v of a batch's key s for head h of the queries.
  int64_t key(int64_t b, int64_t s, int64_t h) const { return (b * S + s) * KV + h / group(); }
};

template <class T>
double dot_in_double(const T* a, const T* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += double(a[i]) * double(b[i]);
  return sum;
}

struct AttentionScore {
  int64_t D;
  double scale, softcap;

  AttentionScore(const KernelSpec& spec, int64_t head) : D(head), softcap(spec.f64("softcap")) {
    const double given = spec.f64("scale");
    scale = given != 0 ? given : 1 / std::sqrt(double(std::max<int64_t>(D, 1)));
  }
  template <class T>
  double compute(const T* q, const T* k) const {
    return finish(dot_in_double(q, k, D));
  }
  // The score of a product of query and key.
  double finish(double product) const {
    const double score = scale * product;
    return softcap > 0 ? softcap * std::tanh(score / softcap) : score;
  }
  // Derivative of a capped score by the one before.
  double slope(double capped) const { return softcap > 0 ? 1 - (capped / softcap) * (capped / softcap) : 1; }
};

// AttentionSegments: document numbers of queries and keys; null pointers when the op has no segments.
struct AttentionSegments {
  const int32_t *q = nullptr, *k = nullptr;  // [B, T], [B, S]
  int64_t T = 0, S = 0;

  static AttentionSegments from_args(const AttentionExtents& e, const LaunchArgs& args, int first,
                                     bool given) {
    if (!given) return {};
    return {args.in<int32_t>(first), args.in<int32_t>(first + 1), e.T, e.S};
  }
  bool same(int64_t b, int64_t t, int64_t s) const { return q == nullptr || q[b * T + t] == k[b * S + s]; }
};

}  // namespace tessera::cpu
