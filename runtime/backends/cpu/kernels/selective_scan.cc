// Reference selective scans, one channel at a time.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "runtime/backends/cpu/kernels/recurrent_kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/kernels/row_tokens.h"
#include "runtime/backends/cpu/kernels/selective_scan_shape.h"

namespace tessera::cpu {

namespace {

// Operands from x, number `first`, on. Without expansion rate, b and c are 1, and the input has no factor step.
template <class F>
struct SelectiveOperands {
  SelectiveShape e;
  const F *x, *step, *rate, *b, *c;

  SelectiveOperands(const SelectiveShape& e, const LaunchArgs& args, int first)
      : e(e),
        x(args.in<F>(first)),
        step(args.in<F>(first + 1)),
        rate(e.expands ? args.in<F>(first + 2) : nullptr),
        b(e.expands ? args.in<F>(first + 3) : nullptr),
        c(e.expands ? args.in<F>(first + 4) : nullptr) {}

  double rate_of(int64_t channel, int64_t n) const { return e.expands ? double(rate[channel * e.N + n]) : 1; }
  double decay(int64_t token, int64_t channel, int64_t n) const {
    return std::exp(double(step[token * e.C + channel]) * rate_of(channel, n));
  }
  double input(int64_t token, int64_t channel) const {
    const int64_t at = token * e.C + channel;
    return (e.expands ? double(step[at]) : 1) * double(x[at]);
  }
  double b_of(int64_t token, int64_t n) const { return e.expands ? double(b[token * e.N + n]) : 1; }
  double c_of(int64_t token, int64_t n) const { return e.expands ? double(c[token * e.N + n]) : 1; }

  // Updates the state of a channel, N numbers `stride` apart, by a token; returns the token's result. The state is rounded after
  // every token, so that it does not matter in which steps tokens come.
  F run(int64_t token, int64_t channel, F* state, int64_t stride) const {
    const double u = input(token, channel);
    double sum = 0;
    for (int64_t n = 0; n < e.N; ++n) {
      F& s = state[n * stride];
      s = F(decay(token, channel, n) * double(s) + u * b_of(token, n));
      sum += double(s) * c_of(token, n);
    }
    return F(sum);
  }
};

// Doubles that a task of the gradient keeps, for one sequence.
struct SelectiveSums {
  double *states, *slope;    // [T, N], [N]: of one channel, after each token
  double *drate, *db, *dc;  // [C, N], [T, N], [T, N]

  static int64_t count(const SelectiveShape& e) { return (3 * e.T + e.C + 1) * e.N; }
  SelectiveSums(const SelectiveShape& e, double* memory) {
    const auto take = [&](int64_t count) { return std::exchange(memory, memory + count * e.N); };
    drate = take(e.C), states = take(e.T), slope = take(1), db = take(e.T), dc = take(e.T);
  }
};

template <class F>
struct SelectiveGrad {
  SelectiveOperands<F> x;
  const F* dy;
  const int32_t* segments;  // may be null
  F *dx, *dstep, *drate, *db, *dc;

  void sequence(int64_t b, const SelectiveSums& s) const {
    const SelectiveShape& e = x.e;
    std::fill_n(s.drate, e.C * e.N, 0.0);
    for (double* sums : {s.db, s.dc}) std::fill_n(sums, e.T * e.N, 0.0);
    for (int64_t channel = 0; channel < e.C; ++channel) {
      for (int64_t t = 0; t < e.T; ++t) run(b, t, channel, s);
      std::fill_n(s.slope, e.N, 0.0);
      for (int64_t t = e.T - 1; t >= 0; --t) back(b, t, channel, s);
    }
    if (!e.expands) return;
    std::copy_n(s.db, e.T * e.N, db + b * e.T * e.N);
    std::copy_n(s.dc, e.T * e.N, dc + b * e.T * e.N);
  }

  bool starts(int64_t b, int64_t t) const { return starts_segment(segments == nullptr ? nullptr : segments + b * x.e.T, t); }

  void run(int64_t b, int64_t t, int64_t channel, const SelectiveSums& s) const {
    const int64_t N = x.e.N, token = b * x.e.T + t;
    double* const state = s.states + t * N;
    for (int64_t n = 0; n < N; ++n) {
      const double before = starts(b, t) ? 0 : state[n - N];
      state[n] = x.decay(token, channel, n) * before + x.input(token, channel) * x.b_of(token, n);
    }
  }

  void back(int64_t b, int64_t t, int64_t channel, const SelectiveSums& s) const {
    const int64_t N = x.e.N, token = b * x.e.T + t, at = token * x.e.C + channel;
    const double* const state = s.states + t * N;
    const double u = x.input(token, channel), g_out = double(dy[at]), step = double(x.step[at]);
    double du = 0, dexponent = 0;
    for (int64_t n = 0; n < N; ++n) {
      double& g = s.slope[n];
      g += x.c_of(token, n) * g_out;
      s.dc[t * N + n] += g_out * state[n];
      s.db[t * N + n] += g * u;
      du += g * x.b_of(token, n);
      g *= x.decay(token, channel, n);
      const double de = starts(b, t) ? 0 : g * state[n - N];
      dexponent += de * x.rate_of(channel, n);
      s.drate[channel * N + n] += de * step;
      if (starts(b, t)) g = 0;
    }
    dx[at] = F(x.e.expands ? du * step : du);
    dstep[at] = F(x.e.expands ? du * double(x.x[at]) + dexponent : dexponent);
  }
};

}  // namespace

// x, step [B, T, C], rate [C, N], b, c [B, T, N], segments [B, T] -> y [B, T, C]; without expansion of x, log_decay, segments
Result<PreparedKernel> prepare_selective_scan(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const SelectiveShape e(spec, 0);
    const bool has_segments = spec.input_count() > e.operand_count();
    auto launch = [=](const LaunchArgs& args) {
      const SelectiveOperands<F> x(e, args, 0);
      args.pool.parallel_for(e.B * e.C, [&](int64_t task) {
        const int64_t b = task / e.C, channel = task % e.C;
        F* state = static_cast<F*>(args.workspace) + task * e.N;
        const int32_t* segments = has_segments ? args.in<int32_t>(e.operand_count()) + b * e.T : nullptr;
        for (int64_t t = 0; t < e.T; ++t) {
          if (starts_segment(segments, t)) std::fill_n(state, e.N, F(0));
          args.out<F>(0)[(b * e.T + t) * e.C + channel] = x.run(b * e.T + t, channel, state, 1);
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), e.flops(), e.B * e.C * e.N * int64_t{sizeof(F)});
  });
}

// dy [B, T, C] and those operands -> dx, dstep, drate, db, dc; without expansion dx, dlog_decay
Result<PreparedKernel> prepare_selective_scan_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const SelectiveShape e(spec, 1);
    const int segments = 1 + e.operand_count();
    const bool has_segments = spec.input_count() > segments;
    const int64_t count = SelectiveSums::count(e);
    auto launch = [=](const LaunchArgs& args) {
      const auto result = [&](int i) { return e.expands ? args.out<F>(i) : nullptr; };
      const SelectiveGrad<F> grad{SelectiveOperands<F>(e, args, 1),
                                  args.in<F>(0),
                                  has_segments ? args.in<int32_t>(segments) : nullptr,
                                  args.out<F>(0),
                                  args.out<F>(1),
                                  result(2),
                                  result(3),
                                  result(4)};
      auto* const memory = static_cast<double*>(args.workspace);
      args.pool.parallel_for(e.B, [&](int64_t b) { grad.sequence(b, SelectiveSums(e, memory + b * count)); });
      for (int64_t i = 0; i < e.C * e.N && e.expands; ++i) {
        double sum = 0;
        for (int64_t b = 0; b < e.B; ++b) sum += memory[b * count + i];
        grad.drate[i] = F(sum);
      }
    };
    return reference_kernel(spec, make_kernel(launch), 3 * e.flops(), e.B * count * int64_t{sizeof(double)});
  });
}

// state [R, N, C], those operands with tokens [B, M], row, position [B, M] -> y [B, M, C], state
Result<PreparedKernel> prepare_selective_scan_rows(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const SelectiveShape e(spec, 1);
    const int64_t R = spec.input_dims(0)[0], tokens = e.B * e.T, state_count = spec.input_elements(0);
    const int row = 1 + e.operand_count();
    auto launch = [=](const LaunchArgs& args) {
      const RowTokens by_row(R, args.in<int32_t>(row), tokens, args.workspace);
      const SelectiveOperands<F> x(e, args, 1);
      const int32_t* const position = args.in<int32_t>(row + 1);
      F *const y = args.out<F>(0), *const states = args.out<F>(1);
      begin_rows<F>(args, by_row, e.C, state_count);
      args.pool.parallel_for(by_row.active_count(), [&](int64_t task) {
        for (int64_t channel = 0; channel < e.C; ++channel) {
          F* const state = states + by_row.active(task) * e.N * e.C + channel;
          for (const int64_t token : by_row.of(by_row.active(task))) {
            for (int64_t n = 0; n < e.N && position[token] == 0; ++n) state[n * e.C] = F(0);
            y[token * e.C + channel] = x.run(token, channel, state, e.C);
          }
        }
      });
    };
    return reference_kernel(spec, make_kernel(launch), e.flops(), RowTokens::bytes(R, tokens));
  });
}

}  // namespace tessera::cpu
