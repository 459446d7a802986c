// Reference scans, one column of a state [K] at a time.
#include <utility>

#include "runtime/backends/cpu/kernels/recurrent_kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/kernels/state_scan_column.h"

namespace tessera::cpu {

namespace {

// Sums of doubles that a task of the gradient keeps, for key head g of sequence b.
struct GradSums {
  double *before, *read;      // [T, K], [T]: the state before each token, and S^T k of the decayed one or S^T a
  double *slope;              // [K]: of the state
  double *dq, *dk, *da, *db;  // [T, K]; the last two with rule general
  double *decay, *beta;       // [T, decays], [T]: of one value head

  static int64_t count(const ScanShape& e) {
    return e.T * ((e.is_general() ? 5 : 3) * e.K + e.decays() + 2) + e.K;
  }
  GradSums(const ScanShape& e, double* memory) {
    const auto take = [&](int64_t count) { return std::exchange(memory, memory + count); };
    before = take(e.T * e.K), read = take(e.T), slope = take(e.K);
    dq = take(e.T * e.K), dk = take(e.T * e.K);
    decay = take(e.T * e.decays()), beta = take(e.T);
    da = db = nullptr;
    if (e.is_general()) da = take(e.T * e.K), db = take(e.T * e.K);
  }
};

template <class F>
struct ScanGrad {
  ScanShape e;
  ScanOperands<F> x;
  const F* dout;
  const int32_t* segments;  // may be null
  F *dq, *dk, *dv, *dlog_decay, *dbeta, *da, *db;

  double decay(int64_t row, int64_t k) const {
    return std::exp(double(x.log_decay[row * e.decays() + (e.decays_by_channel ? k : 0)]));
  }

  void key_head(int64_t b, int64_t g, GradSums s) const {
    for (double* sums : {s.dq, s.dk, s.da, s.db})
      if (sums != nullptr) std::fill_n(sums, e.T * e.K, 0.0);
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
        if (dbeta != nullptr) dbeta[row] = F(s.beta[t]);
        for (int64_t i = 0; i < e.decays(); ++i) dlog_decay[row * e.decays() + i] = F(s.decay[t * e.decays() + i]);
      }
    }
    for (const auto& [sums, to] : {std::pair(s.dq, dq), std::pair(s.dk, dk), std::pair(s.da, da), std::pair(s.db, db)})
      for (int64_t t = 0; t < e.T && to != nullptr; ++t)
        std::copy_n(sums + t * e.K, e.K, to + e.key_row(b * e.T + t, g) * e.K);
  }

  const int32_t* segments_of(int64_t b) const { return segments == nullptr ? nullptr : segments + b * e.T; }

  // The factor of k in the update of column v; `read` is 0 with rule add.
  double change_of(int64_t row, int64_t v, double read) const {
    const double value = double(x.v[row * e.V + v]);
    return e.is_general() ? value : double(x.beta[row]) * (value - read);
  }

  // The state after a token, channel i.
  double after(int64_t key_at, double decayed, double change, double read) const {
    const double correction = e.is_general() ? double(x.b[key_at]) * read : 0;
    return decayed + correction + double(x.k[key_at]) * change;
  }

  // The scan, which leaves the states and what is read of them.
  void run(int64_t b, int64_t g, int64_t h, int64_t v, const GradSums& s) const {
    for (int64_t t = 0; t < e.T; ++t) {
      const int64_t row = e.value_row(b * e.T + t, h);
      const int64_t first = e.key_row(b * e.T + t, g) * e.K;
      double* before = s.before + t * e.K;
      if (starts_segment(segments_of(b), t)) std::fill_n(before, e.K, 0.0);
      double read = 0;
      for (int64_t i = 0; i < e.K; ++i) {
        if (e.is_general()) read += before[i] * double(x.a[first + i]);
        if (e.rule == ScanRule::kDelta) read += decay(row, i) * before[i] * double(x.k[first + i]);
      }
      s.read[t] = read;
      if (t + 1 == e.T) continue;
      const double change = change_of(row, v, read);
      for (int64_t i = 0; i < e.K; ++i)
        before[e.K + i] = after(first + i, decay(row, i) * before[i], change, read);
    }
  }

  // One token of the scan backwards.
  void back(int64_t b, int64_t t, int64_t g, int64_t h, int64_t v, const GradSums& s) const {
    const int64_t row = e.value_row(b * e.T + t, h), first = e.key_row(b * e.T + t, g) * e.K;
    const double* before = s.before + t * e.K;
    const double read = s.read[t], change = change_of(row, v, read);
    const double g_out = e.scale * double(dout[row * e.V + v]);
    double dchange = 0, dread = 0;
    for (int64_t i = 0; i < e.K; ++i) {
      const int64_t at = t * e.K + i;
      s.slope[i] += double(x.q[first + i]) * g_out;
      s.dq[at] += g_out * after(first + i, decay(row, i) * before[i], change, read);
      s.dk[at] += s.slope[i] * change;
      dchange += s.slope[i] * double(x.k[first + i]);
      if (!e.is_general()) continue;
      s.db[at] += s.slope[i] * read;
      dread += s.slope[i] * double(x.b[first + i]);
    }
    const double dvalue = e.is_general() ? dchange : double(x.beta[row]) * dchange;
    dv[row * e.V + v] = F(dvalue);
    if (!e.is_general()) s.beta[t] += (double(x.v[row * e.V + v]) - read) * dchange;
    if (e.rule == ScanRule::kDelta) dread = -dvalue;
    state_back(t, row, first, dread, starts_segment(segments_of(b), t), s);
  }

  // From the gradient of the state after a token to that of the state before it.
  void state_back(int64_t t, int64_t row, int64_t first, double dread, bool starts, const GradSums& s) const {
    const double* before = s.before + t * e.K;
    for (int64_t i = 0; i < e.K; ++i) {
      const double decayed = decay(row, i) * before[i];
      if (e.rule == ScanRule::kDelta) {
        s.dk[t * e.K + i] += decayed * dread;
        s.slope[i] += double(x.k[first + i]) * dread;
      }
      s.decay[t * e.decays() + (e.decays_by_channel ? i : 0)] += s.slope[i] * decayed;
      double slope = s.slope[i] * decay(row, i);
      if (e.is_general()) {
        s.da[t * e.K + i] += before[i] * dread;
        slope += double(x.a[first + i]) * dread;
      }
      s.slope[i] = starts ? 0 : slope;
    }
  }
};

}  // namespace

// q, k [B, T, G, K], v [B, T, H, V], log_decay [B, T, H] or [B, T, H, K], beta [B, T, H] or a, b [B, T, G, K],
// segments [B, T] -> o [B, T, H, V]
Result<PreparedKernel> prepare_state_scan(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const ScanShape e(spec, 0);
    const bool has_segments = spec.input_count() > e.operand_count();
    auto launch = [=](const LaunchArgs& args) {
      const ScanOperands<F> x(e, args, 0);
      args.pool.parallel_for(e.B * e.H, [&](int64_t task) {
        const int64_t b = task / e.H, h = task % e.H;
        F* state = static_cast<F*>(args.workspace) + task * e.K;
        const int32_t* segments = has_segments ? args.in<int32_t>(e.operand_count()) + b * e.T : nullptr;
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

// dout [B, T, H, V] and those operands -> dq, dk, dv, dlog_decay, and dbeta or da, db
Result<PreparedKernel> prepare_state_scan_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const ScanShape e(spec, 1);
    const int segments = 1 + e.operand_count();
    const bool has_segments = spec.input_count() > segments;
    auto launch = [=](const LaunchArgs& args) {
      const ScanGrad<F> grad{e,
                             ScanOperands<F>(e, args, 1),
                             args.in<F>(0),
                             has_segments ? args.in<int32_t>(segments) : nullptr,
                             args.out<F>(0),
                             args.out<F>(1),
                             args.out<F>(2),
                             args.out<F>(3),
                             e.is_general() ? nullptr : args.out<F>(4),
                             e.is_general() ? args.out<F>(4) : nullptr,
                             e.is_general() ? args.out<F>(5) : nullptr};
      args.pool.parallel_for(e.B * e.G, [&](int64_t task) {
        grad.key_head(task / e.G, task % e.G,
                      GradSums(e, static_cast<double*>(args.workspace) + task * GradSums::count(e)));
      });
    };
    return reference_kernel(spec, make_kernel(launch), e.grad_flops(),
                            e.B * e.G * GradSums::count(e) * int64_t{sizeof(double)});
  });
}

}  // namespace tessera::cpu
