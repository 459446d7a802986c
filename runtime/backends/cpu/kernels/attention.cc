// Reference attention, streaming: a query passes over the keys in blocks and keeps a running maximum, sum and
// output (Milakov and Gimelshein, 2018), so that nothing of extent T x S is stored.
#include <cmath>
#include <limits>

#include "runtime/backends/cpu/factor_index.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kKeyBlock = 64;    // scores of a query at a time
constexpr int64_t kHeadBlock = 128;  // of D that is summed at a time; larger heads repeat the scores

struct Extents {
  int64_t B, T, H, S, KV, D;
  int64_t group() const { return KV > 0 ? H / KV : 1; }
  int64_t query(int64_t b, int64_t t, int64_t h) const { return ((b * T + t) * H + h) * D; }
  int64_t key(int64_t b, int64_t s, int64_t h) const { return ((b * S + s) * KV + h) * D; }
};

Extents extents(std::span<const int64_t> q, std::span<const int64_t> k) {
  return {q[0], q[1], q[2], k[1], k[2], q[3]};
}

double scale_of(const KernelSpec& spec, int64_t D) {
  const double scale = spec.f64("scale");
  return scale != 0 ? scale : 1 / std::sqrt(double(std::max<int64_t>(D, 1)));
}

template <class T>
double dot(const T* a, const T* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += double(a[i]) * double(b[i]);
  return sum;
}

// Attends one query to `keys` rows of k and v, `stride` apart: writes out [D], returns the log of the sum.
template <class T>
double attend(const T* q, const T* k, const T* v, int64_t keys, int64_t stride, int64_t D, double scale,
              T* out) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  double lse = kNone;
  for (int64_t d0 = 0; d0 < std::max<int64_t>(D, 1); d0 += kHeadBlock) {
    const int64_t width = std::min(kHeadBlock, D - d0);
    double top = kNone, sum = 0, value[kHeadBlock] = {}, weight[kKeyBlock];
    for (int64_t s0 = 0; s0 < keys; s0 += kKeyBlock) {
      const int64_t count = std::min(kKeyBlock, keys - s0);
      double block_top = top;
      for (int64_t s = 0; s < count; ++s) {
        weight[s] = scale * dot(q, k + (s0 + s) * stride, D);
        if (!(weight[s] <= block_top)) block_top = weight[s];
      }
      const double shrink = top == kNone ? 0 : std::exp(top - block_top);
      sum *= shrink;
      for (int64_t d = 0; d < width; ++d) value[d] *= shrink;
      for (int64_t s = 0; s < count; ++s) {
        const double p = std::exp(weight[s] - block_top);
        sum += p;
        const T* row = v + (s0 + s) * stride + d0;
        for (int64_t d = 0; d < width; ++d) value[d] += p * double(row[d]);
      }
      top = block_top;
    }
    for (int64_t d = 0; d < width; ++d) out[d0 + d] = keys > 0 ? T(value[d] / sum) : T(0);
    lse = keys > 0 ? top + std::log(sum) : kNone;
  }
  return lse;
}

}  // namespace

// q [B, T, H, D], k, v [B, S, KV, D] -> out [B, T, H, D], lse [B, T, H]
Result<PreparedKernel> prepare_attention(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const Extents e = extents(spec.input_dims(0), spec.input_dims(1));
    const FactorIndex t_index(spec.factor('t')), s_index(spec.factor('s'));
    const bool causal = spec.i64("causal") == 1;
    const double scale = scale_of(spec, e.D);
    auto launch = [=](const LaunchArgs& args) {
      const F *q = args.in<F>(0), *k = args.in<F>(1), *v = args.in<F>(2);
      F *out = args.out<F>(0), *lse = args.out<F>(1);
      args.pool.parallel_ranges(e.B * e.T * e.H, row_grain(e.S * e.D), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t h = row % e.H, t = row / e.H % e.T, b = row / e.H / e.T;
          const int64_t keys = causal ? s_index.count_before(t_index.to_global(t) + 1) : e.S;
          const int64_t first = e.key(b, 0, h / e.group());
          lse[row] =
              F(attend(q + row * e.D, k + first, v + first, keys, e.KV * e.D, e.D, scale, out + row * e.D));
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 4.0 * double(e.B * e.T * e.H) * double(e.S * e.D));
  });
}

// dout, q [B, T, H, D], k, v [B, S, KV, D], out [B, T, H, D], lse [B, T, H] -> dq, dk, dv. First the queries
// (dq and delta), then the keys, each of which sums over its queries in order: no two tasks write to one
// place.
Result<PreparedKernel> prepare_attention_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const Extents e = extents(spec.input_dims(1), spec.input_dims(2));
    const FactorIndex t_index(spec.factor('t')), s_index(spec.factor('s'));
    const bool causal = spec.i64("causal") == 1;
    const double scale = scale_of(spec, e.D);
    const int64_t queries = e.B * e.T * e.H;
    auto launch = [=](const LaunchArgs& args) {
      const F *dout = args.in<F>(0), *q = args.in<F>(1), *k = args.in<F>(2), *v = args.in<F>(3);
      const F *out = args.in<F>(4), *lse = args.in<F>(5);
      F *dq = args.out<F>(0), *dk = args.out<F>(1), *dv = args.out<F>(2);
      double* delta = static_cast<double*>(args.workspace);  // [B, T, H]

      args.pool.parallel_ranges(queries, row_grain(e.S * e.D), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t h = row % e.H, t = row / e.H % e.T, b = row / e.H / e.T, at = row * e.D;
          const int64_t keys = causal ? s_index.count_before(t_index.to_global(t) + 1) : e.S;
          delta[row] = dot(dout + at, out + at, e.D);
          for (int64_t d0 = 0; d0 < e.D; d0 += kHeadBlock) {
            const int64_t width = std::min(kHeadBlock, e.D - d0);
            double sum[kHeadBlock] = {};
            for (int64_t s = 0; s < keys; ++s) {
              const int64_t key = e.key(b, s, h / e.group());
              const double p = std::exp(scale * dot(q + at, k + key, e.D) - double(lse[row]));
              const double ds = p * (dot(dout + at, v + key, e.D) - delta[row]);
              for (int64_t d = 0; d < width; ++d) sum[d] += ds * double(k[key + d0 + d]);
            }
            for (int64_t d = 0; d < width; ++d) dq[at + d0 + d] = F(scale * sum[d]);
          }
        }
      });

      args.pool.parallel_ranges(
          e.B * e.S * e.KV, row_grain(e.T * e.group() * e.D), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
              const int64_t kv = row % e.KV, s = row / e.KV % e.S, b = row / e.KV / e.S, key = row * e.D;
              for (int64_t d0 = 0; d0 < e.D; d0 += kHeadBlock) {
                const int64_t width = std::min(kHeadBlock, e.D - d0);
                double k_sum[kHeadBlock] = {}, v_sum[kHeadBlock] = {};
                for (int64_t t = 0; t < e.T; ++t) {
                  if (causal && t_index.to_global(t) < s_index.to_global(s)) continue;
                  for (int64_t h = kv * e.group(); h < (kv + 1) * e.group(); ++h) {
                    const int64_t query = (b * e.T + t) * e.H + h, at = query * e.D;
                    const double p = std::exp(scale * dot(q + at, k + key, e.D) - double(lse[query]));
                    const double ds = p * (dot(dout + at, v + key, e.D) - delta[query]);
                    for (int64_t d = 0; d < width; ++d) {
                      k_sum[d] += ds * double(q[at + d0 + d]);
                      v_sum[d] += p * double(dout[at + d0 + d]);
                    }
                  }
                }
                for (int64_t d = 0; d < width; ++d) {
                  dk[key + d0 + d] = F(scale * k_sum[d]);
                  dv[key + d0 + d] = F(v_sum[d]);
                }
              }
            }
          });
    };
    return reference_kernel(spec, make_kernel(launch), 14.0 * double(queries) * double(e.S * e.D),
                            queries * int64_t{sizeof(double)});
  });
}

// q [B, T, H, D], k_cache, v_cache [B, S, KV, D], start [B] -> out [B, T, H, D]. `start` is untrusted:
// positions beyond the cache are not read, and a query before position 0 sees nothing.
Result<PreparedKernel> prepare_attention_cached(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const Extents e = extents(spec.input_dims(0), spec.input_dims(1));
    const FactorIndex t_index(spec.factor('t'));
    const double scale = scale_of(spec, e.D);
    auto launch = [=](const LaunchArgs& args) {
      const F *q = args.in<F>(0), *k = args.in<F>(1), *v = args.in<F>(2);
      const int32_t* start = args.in<int32_t>(3);
      F* out = args.out<F>(0);
      args.pool.parallel_ranges(e.B * e.T * e.H, row_grain(e.S * e.D), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t h = row % e.H, t = row / e.H % e.T, b = row / e.H / e.T;
          const int64_t keys = std::clamp<int64_t>(start[b] + t_index.to_global(t) + 1, 0, e.S);
          const int64_t first = e.key(b, 0, h / e.group());
          attend(q + row * e.D, k + first, v + first, keys, e.KV * e.D, e.D, scale, out + row * e.D);
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), 4.0 * double(e.B * e.T * e.H) * double(e.S * e.D));
  });
}

// out_a [B, T, H, D], lse_a [B, T, H], out_b, lse_b -> out, lse
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
