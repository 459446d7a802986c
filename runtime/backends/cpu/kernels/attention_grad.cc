// Reference gradient of attention. First the queries (dq and delta), then the keys, each of which sums over its
// queries in order: no two tasks write to one place.
#include <cmath>

#include "runtime/backends/cpu/kernels/attention_scores.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {

template <class F>
struct AttentionGrad {
  AttentionExtents e;
  AttentionScore score;
  AttentionMask mask;
  AttentionSegments segments;
  const F *dout, *q, *k, *v, *out, *lse, *dlse;  // dlse may be null
  F *dq, *dk, *dv;
  double* delta;  // [B, T, H]

  struct Pair {
    double p, ds;  // the weight, and the gradient of the score before scale
  };
  // The pair of query row `query` and key row `key`, where the query attends to the key.
  Pair pair(int64_t query, int64_t key) const {
    const double capped = score.compute(q + query * e.D, k + key * e.D);
    const double p = std::exp(capped - double(lse[query]));
    const double dp = dot_in_double(dout + query * e.V, v + key * e.V, e.V) - delta[query];
    return {p, p * dp * score.slope(capped)};
  }

  void query_gradient(int64_t query) const {
    const int64_t h = query % e.H, t = query / e.H % e.T, b = query / e.H / e.T;
    const AttentionMask::Keys keys = mask.keys(t);
    delta[query] = dot_in_double(dout + query * e.V, out + query * e.V, e.V);
    if (dlse != nullptr) delta[query] -= double(dlse[query]);
    for (int64_t d0 = 0; d0 < e.D; d0 += kHeadBlock) {
      const int64_t width = std::min(kHeadBlock, e.D - d0);
      double sum[kHeadBlock] = {};
      for (int64_t s = keys.begin; s < keys.end; ++s) {
        if (!segments.same(b, t, s)) continue;
        const int64_t key = e.key(b, s, h);
        const double ds = pair(query, key).ds;
        for (int64_t d = 0; d < width; ++d) sum[d] += ds * double(k[key * e.D + d0 + d]);
      }
      for (int64_t d = 0; d < width; ++d) dq[query * e.D + d0 + d] = F(score.scale * sum[d]);
    }
  }

  // body(query) for the queries that see key (b, s, kv), in order.
  template <class Body>
  void each_query(int64_t key, Body&& body) const {
    const int64_t kv = key % e.KV, s = key / e.KV % e.S, b = key / e.KV / e.S;
    for (int64_t t = 0; t < e.T; ++t) {
      const AttentionMask::Keys keys = mask.keys(t);
      if (s < keys.begin || s >= keys.end || !segments.same(b, t, s)) continue;
      for (int64_t h = kv * e.group(); h < (kv + 1) * e.group(); ++h) body((b * e.T + t) * e.H + h);
    }
  }

  void key_gradient(int64_t key) const {
    for (int64_t d0 = 0; d0 < std::max(e.D, e.V); d0 += kHeadBlock) {
      const int64_t of_k = std::clamp<int64_t>(e.D - d0, 0, kHeadBlock);
      const int64_t of_v = std::clamp<int64_t>(e.V - d0, 0, kHeadBlock);
      double k_sum[kHeadBlock] = {}, v_sum[kHeadBlock] = {};
      each_query(key, [&](int64_t query) {
        const Pair x = pair(query, key);
        for (int64_t d = 0; d < of_k; ++d) k_sum[d] += x.ds * double(q[query * e.D + d0 + d]);
        for (int64_t d = 0; d < of_v; ++d) v_sum[d] += x.p * double(dout[query * e.V + d0 + d]);
      });
      for (int64_t d = 0; d < of_k; ++d) dk[key * e.D + d0 + d] = F(score.scale * k_sum[d]);
      for (int64_t d = 0; d < of_v; ++d) dv[key * e.V + d0 + d] = F(v_sum[d]);
    }
  }
};

}  // namespace

// dout [B, T, H, V], q [B, T, H, D], k [B, S, KV, D], v [B, S, KV, V], out [B, T, H, V], lse [B, T, H]
// (, q_segment [B, T], k_segment [B, S]) (, dlse [B, T, H]) -> dq, dk, dv
Result<PreparedKernel> prepare_attention_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const auto e = AttentionExtents::from_spec(spec, 1, 2, 3);
    const AttentionMask mask = attention_mask(spec, e.S, spec.i64("causal") == 1);
    const AttentionScore score(spec, e.D);
    const int count = spec.input_count();
    auto launch = [=](const LaunchArgs& args) {
      const AttentionGrad<F> x{e,
                               score,
                               mask,
                               AttentionSegments::from_args(e, args, 6, count >= 8),
                               args.in<F>(0),
                               args.in<F>(1),
                               args.in<F>(2),
                               args.in<F>(3),
                               args.in<F>(4),
                               args.in<F>(5),
                               count % 2 == 1 ? args.in<F>(count - 1) : nullptr,
                               args.out<F>(0),
                               args.out<F>(1),
                               args.out<F>(2),
                               static_cast<double*>(args.workspace)};
      args.pool.parallel_ranges(e.queries(), row_grain(e.S * e.D), [&](int64_t begin, int64_t end) {
        for (int64_t query = begin; query < end; ++query) x.query_gradient(query);
      });
      args.pool.parallel_ranges(e.B * e.S * e.KV, row_grain(e.T * e.group() * e.D),
                                [&](int64_t begin, int64_t end) {
                                  for (int64_t key = begin; key < end; ++key) x.key_gradient(key);
                                });
    };
    const double pairs = double(e.queries()) * double(e.S);
    return reference_kernel(spec, make_kernel(launch), pairs * double(8 * e.D + 6 * e.V),
                            e.queries() * int64_t{sizeof(double)});
  });
}

}  // namespace tessera::cpu
