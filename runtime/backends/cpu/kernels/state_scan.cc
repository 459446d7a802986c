// Reference scans, one column of a state [K] at a time.
#include <utility>

#include "runtime/backends/cpu/kernels/recurrent_kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/kernels/state_scan_column.h"

namespace tessera::cpu {

namespace {

// q, k [B, T, G, K], v [B, T, H, V], log_decay [B, T, H] or [B, T, H, K], beta [B, T, H] from operand `first` on.
template <class F>
ScanOperands<F> operands_of(const LaunchArgs& args, int first) {
  return {args.in<F>(first), args.in<F>(first + 1), args.in<F>(first + 2), args.in<F>(first + 3),
          args.in<F>(first + 4)};
}

// Sums of doubles that a task of the gradient keeps, for key head g of sequence b.
struct GradSums {
  double *before, *gap;  // [T, K], [T]: the state before each token, and v - S^T k
  double *slope;         // [K]: of the state
  double *dq, *dk;       // [T, K]
  double *decay, *beta;  // [T, decays], [T]: of one value head

  static int64_t count(const ScanShape& e) { return e.T * (3 * e.K + e.decays() + 2) + e.K; }
  GradSums(const ScanShape& e, double* memory) {
    const auto take = [&](int64_t count) { return std::exchange(memory, memory + count); };
    before = take(e.T * e.K), gap = take(e.T), slope = take(e.K);
    dq = take(e.T * e.K), dk = take(e.T * e.K);
    decay = take(e.T * e.decays()), beta = take(e.T);
  }
};

template <class F>
struct ScanGrad {
  ScanShape e;
  ScanOperands<F> x;
  const F* dout;
  const int32_t* segments;  // may be null
  F *dq, *dk, *dv, *dlog_decay, *dbeta;

  double decay(int64_t row, int64_t k) const {
    return std::exp(double(x.log_decay[row * e.decays() + (e.decays_by_channel ? k : 0)]));
  }

  void key_head(int64_t b, int64_t g, GradSums s) const {
    std::fill_n(s.dq, e.T * e.K, 0.0);
    std::fill_n(s.dk, e.T * e.K, 0.0);
    for (int64_t h = g * e.group(); h < (g + 1) * e.group(); ++h) {
      std::fill_n(s.decay, e.T * e.decays(), 0.0);
      std::fill_n(s.beta, e.T, 0.0);
      for (int64_t v = 0; v < e.V; ++v) {
        run(b, g, h, v, s);
        std::fill_n(s.slope, e.K, 0.0);
        for (int64_t t = e.T - 1; t >= 0; --t) back(b, t, g, h, v, s);
      }
      for (int64_t t = 0; t < e.T; ++t) {
        const int64_t row = e.value_row(b * e.T + t, h);
        dbeta[row] = F(s.beta[t]);
        for (int64_t i = 0; i < e.decays(); ++i) dlog_decay[row * e.decays() + i] = F(s.decay[t * e.decays() + i]);
      }
    }
    for (int64_t t = 0; t < e.T; ++t)
      for (int64_t i = 0; i < e.K; ++i) {
        const int64_t at = e.key_row(b * e.T + t, g) * e.K + i;
        dq[at] = F(s.dq[t * e.K + i]);
        dk[at] = F(s.dk[t * e.K + i]);
      }
  }

  const int32_t* segments_of(int64_t b) const { return segments == nullptr ? nullptr : segments + b * e.T; }

  // The scan, which leaves the states and gaps.
  void run(int64_t b, int64_t g, int64_t h, int64_t v, const GradSums& s) const {
    for (int64_t t = 0; t < e.T; ++t) {
      const int64_t row = e.value_row(b * e.T + t, h);
      const F* key = x.k + e.key_row(b * e.T + t, g) * e.K;
      double* before = s.before + t * e.K;
      if (starts_segment(segments_of(b), t)) std::fill_n(before, e.K, 0.0);
      double dot = 0;
      for (int64_t i = 0; i < e.K; ++i) dot += decay(row, i) * before[i] * double(key[i]);
      s.gap[t] = double(x.v[row * e.V + v]) - (e.corrects ? dot : 0);
      if (t + 1 == e.T) continue;
      for (int64_t i = 0; i < e.K; ++i)
        before[e.K + i] = decay(row, i) * before[i] + double(key[i]) * double(x.beta[row]) * s.gap[t];
    }
  }

  // One token of the scan backwards.
  void back(int64_t b, int64_t t, int64_t g, int64_t h, int64_t v, const GradSums& s) const {
    const int64_t row = e.value_row(b * e.T + t, h), key_row = e.key_row(b * e.T + t, g);
    const F *query = x.q + key_row * e.K, *key = x.k + key_row * e.K;
    const double* before = s.before + t * e.K;
    const double g_out = e.scale * double(dout[row * e.V + v]), beta = double(x.beta[row]);
    double dvalue = 0;  // of beta * gap
    for (int64_t i = 0; i < e.K; ++i) {
      const double after = decay(row, i) * before[i] + double(key[i]) * beta * s.gap[t];
      s.slope[i] += double(query[i]) * g_out;
      s.dq[t * e.K + i] += g_out * after;
      s.dk[t * e.K + i] += s.slope[i] * beta * s.gap[t];
      dvalue += s.slope[i] * double(key[i]);
    }
    s.beta[t] += s.gap[t] * dvalue;
    const double dgap = beta * dvalue;
    dv[row * e.V + v] = F(dgap);
    const bool starts = starts_segment(segments_of(b), t);
    for (int64_t i = 0; i < e.K; ++i) {
      const double decayed = decay(row, i) * before[i];
      if (e.corrects) {
        s.dk[t * e.K + i] -= decayed * dgap;
        s.slope[i] -= double(key[i]) * dgap;
      }
      s.decay[t * e.decays() + (e.decays_by_channel ? i : 0)] += s.slope[i] * decayed;
      s.slope[i] = starts ? 0 : s.slope[i] * decay(row, i);
    }
  }
};

}  // namespace

// q, k [B, T, G, K], v [B, T, H, V], log_decay [B, T, H] or [B, T, H, K], beta [B, T, H], segments [B, T]
//   -> o [B, T, H, V]
Result<PreparedKernel> prepare_state_scan(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const ScanShape e(spec, 0);
    const bool has_segments = spec.input_count() == 6;
    auto launch = [=](const LaunchArgs& args) {
      const ScanOperands<F> x = operands_of<F>(args, 0);
      args.pool.parallel_for(e.B * e.H, [&](int64_t task) {
        const int64_t b = task / e.H, h = task % e.H;
        F* state = static_cast<F*>(args.workspace) + task * e.K;
        const int32_t* segments = has_segments ? args.in<int32_t>(5) + b * e.T : nullptr;
        for (int64_t v = 0; v < e.V; ++v)
          for (int64_t t = 0; t < e.T; ++t) {
            if (starts_segment(segments, t)) std::fill_n(state, e.K, F(0));
            args.out<F>(0)[e.value_row(b * e.T + t, h) * e.V + v] = scan_column(e, x, b * e.T + t, h, v, state);
          }
      });
    };
    return reference_kernel(spec, make_kernel(launch), e.flops(), e.B * e.H * e.K * int64_t{sizeof(F)});
  });
}

// dout [B, T, H, V] and those operands -> dq, dk, dv, dlog_decay, dbeta
Result<PreparedKernel> prepare_state_scan_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const ScanShape e(spec, 1);
    const bool has_segments = spec.input_count() == 7;
    auto launch = [=](const LaunchArgs& args) {
      const ScanGrad<F> grad{e,
                             operands_of<F>(args, 1),
                             args.in<F>(0),
                             has_segments ? args.in<int32_t>(6) : nullptr,
                             args.out<F>(0),
                             args.out<F>(1),
                             args.out<F>(2),
                             args.out<F>(3),
                             args.out<F>(4)};
      args.pool.parallel_for(e.B * e.G, [&](int64_t task) {
        grad.key_head(task / e.G, task % e.G,
                      GradSums(e, static_cast<double*>(args.workspace) + task * GradSums::count(e)));
      });
    };
    return reference_kernel(spec, make_kernel(launch), 2 * e.flops() + 15 * e.state_elements(),
                            e.B * e.G * GradSums::count(e) * int64_t{sizeof(double)});
  });
}

}  // namespace tessera::cpu
