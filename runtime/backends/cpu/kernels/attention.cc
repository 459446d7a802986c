// Reference attention, streaming: a query passes over the keys in blocks and keeps a running maximum, sum and
// output (Milakov and Gimelshein, 2018), so that nothing of extent T x S is stored.
#include <cmath>
#include <limits>

#include "runtime/backends/cpu/kernels/attention_scores.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kKeyBlock = 64;  // scores of a query at a time

// Query (b, t, h) and the keys that it may see.
struct Query {
  int64_t b, t, h;
  AttentionMask::Keys keys;
};

// Attends one query, of D elements at `q`: writes out [V], returns the log of the sum.
template <class T>
double attend(const AttentionExtents& e, const AttentionScore& score, const AttentionSegments& segments,
              const Query& x, const T* q, const T* k, const T* v, T* out) {
  double lse = kUnseen;
  for (int64_t d0 = 0; d0 < std::max<int64_t>(e.V, 1); d0 += kHeadBlock) {
    const int64_t width = std::min(kHeadBlock, e.V - d0);
    double top = kUnseen, sum = 0, value[kHeadBlock] = {}, weight[kKeyBlock];
    for (int64_t s0 = x.keys.begin; s0 < x.keys.end; s0 += kKeyBlock) {
      const int64_t count = std::min(kKeyBlock, x.keys.end - s0);
      double block_top = top;
      for (int64_t s = 0; s < count; ++s) {
        weight[s] =
            segments.same(x.b, x.t, s0 + s) ? score.compute(q, k + e.key(x.b, s0 + s, x.h) * e.D) : kUnseen;
        if (!(weight[s] <= block_top)) block_top = weight[s];
      }
      if (block_top == kUnseen) continue;
      const double shrink = top == kUnseen ? 0 : std::exp(top - block_top);
      sum *= shrink;
      for (int64_t d = 0; d < width; ++d) value[d] *= shrink;
      for (int64_t s = 0; s < count; ++s) {
        if (weight[s] == kUnseen) continue;
        const double p = std::exp(weight[s] - block_top);
        sum += p;
        const T* row = v + e.key(x.b, s0 + s, x.h) * e.V + d0;
        for (int64_t d = 0; d < width; ++d) value[d] += p * double(row[d]);
      }
      top = block_top;
    }
    for (int64_t d = 0; d < width; ++d) out[d0 + d] = top == kUnseen ? T(0) : T(value[d] / sum);
    lse = top == kUnseen ? kUnseen : top + std::log(sum);
  }
  return lse;
}

// q [B, T, H, D], k [B, S, KV, D], v [B, S, KV, V] -> out [B, T, H, V], lse [B, T, H].
template <class F>
void attend_all(const AttentionExtents& e, const AttentionScore& score, const AttentionMask& mask,
                const AttentionSegments& segments, const LaunchArgs& args) {
  const F *q = args.in<F>(0), *k = args.in<F>(1), *v = args.in<F>(2);
  F *out = args.out<F>(0), *lse = args.out<F>(1);
  args.pool.parallel_ranges(e.queries(), row_grain(e.S * e.D), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      Query x{row / e.H / e.T, row / e.H % e.T, row % e.H, {}};
      x.keys = mask.keys(x.t);
      lse[row] = F(attend(e, score, segments, x, q + row * e.D, k, v, out + row * e.V));
    }
  });
}

double forward_flops(const AttentionExtents& e) {
  return 2.0 * double(e.queries()) * double(e.S) * double(e.D + e.V);
}

}  // namespace

// q [B, T, H, D], k [B, S, KV, D], v [B, S, KV, V] (, q_segment [B, T], k_segment [B, S]) -> out [B, T, H, V],
// lse [B, T, H]
Result<PreparedKernel> prepare_attention(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const auto e = AttentionExtents::from_spec(spec, 0, 1, 2);
    const AttentionMask mask = attention_mask(spec, e.S, spec.i64("causal") == 1);
    const AttentionScore score(spec, e.D);
    const bool has_segments = spec.input_count() == 5;
    auto launch = [=](const LaunchArgs& args) {
      const auto segments = AttentionSegments::from_args(e, args, 3, has_segments);
      attend_all<F>(e, score, mask, segments, args);
    };
    return reference_kernel(spec, make_kernel(launch), forward_flops(e));
  });
}

// out_a [B, T, H, V], lse_a [B, T, H], out_b, lse_b -> out, lse
Result<PreparedKernel> prepare_attention_merge(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const auto dims = spec.input_dims(0);
    const int64_t rows = dims[0] * dims[1] * dims[2], D = dims[3];
    auto launch = [=](const LaunchArgs& args) {
      const F *out_a = args.in<F>(0), *lse_a = args.in<F>(1), *out_b = args.in<F>(2), *lse_b = args.in<F>(3);
      F *out = args.out<F>(0), *lse = args.out<F>(1);
      args.pool.parallel_ranges(rows, row_grain(D), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const double a = double(lse_a[row]), b = double(lse_b[row]), top = std::max(a, b);
          const bool none = top == -std::numeric_limits<double>::infinity();
          const double both = none ? top : top + std::log(std::exp(a - top) + std::exp(b - top));
          const double of_a = none ? 0 : std::exp(a - both), of_b = none ? 0 : std::exp(b - both);
          for (int64_t d = row * D; d < (row + 1) * D; ++d)
            out[d] = F(of_a * double(out_a[d]) + of_b * double(out_b[d]));
          lse[row] = F(both);
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 3.0 * double(rows * D));
  });
}

}  // namespace tessera::cpu
