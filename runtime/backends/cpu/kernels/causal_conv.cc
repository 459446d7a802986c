#include "runtime/backends/cpu/kernels/activation_math.h"
#include "runtime/backends/cpu/kernels/causal_conv_shape.h"
#include "runtime/backends/cpu/kernels/recurrent_kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

namespace {

constexpr int64_t kChannels = 64;  // of a task

template <class F>
struct Conv {
  ConvShape e;
  const F *x, *w, *bias;    // bias may be null
  const int32_t* segments;  // may be null

  bool joins(int64_t b, int64_t t, int64_t from) const {
    return from >= 0 && (segments == nullptr || segments[b * e.T + from] == segments[b * e.T + t]);
  }
  // The sum before the activation.
  double sum(int64_t b, int64_t t, int64_t c) const {
    double sum = bias == nullptr ? 0 : double(bias[c]);
    for (int64_t j = 0; j < e.K; ++j)
      if (const int64_t from = t - e.K + 1 + j; joins(b, t, from))
        sum += double(w[c * e.K + j]) * double(x[(b * e.T + from) * e.C + c]);
    return sum;
  }

  void run(const Pool& pool, F* y) const {
    pool.parallel_ranges(e.B * e.T, row_grain(e.C * e.K), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t c = 0; c < e.C; ++c) {
          const double z = sum(row / e.T, row % e.T, c);
          y[row * e.C + c] = F(e.has_silu ? silu(z) : z);
        }
    });
  }

  // g[b, t, c]: the gradient before the activation.
  double slope(const F* dy, int64_t b, int64_t t, int64_t c) const {
    const double g = double(dy[(b * e.T + t) * e.C + c]);
    return e.has_silu ? g * silu_derivative(sum(b, t, c)) : g;
  }

  void input_gradient(const Pool& pool, const F* dy, F* dx) const {
    pool.parallel_ranges(e.B * e.T, row_grain(e.C * e.K), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        for (int64_t c = 0; c < e.C; ++c) {
          const int64_t b = row / e.T, t = row % e.T;
          double sum = 0;
          for (int64_t later = t; later < std::min(e.T, t + e.K); ++later)
            if (joins(b, later, t)) sum += double(w[c * e.K + e.K - 1 - (later - t)]) * slope(dy, b, later, c);
          dx[row * e.C + c] = F(sum);
        }
    });
  }

  void weight_gradient(const Pool& pool, const F* dy, F* dw, F* dbias) const {
    pool.parallel_ranges(e.C, kChannels, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        double taps[kMostConvTaps] = {}, total = 0;
        for (int64_t b = 0; b < e.B; ++b)
          for (int64_t t = 0; t < e.T; ++t) {
            const double g = slope(dy, b, t, c);
            total += g;
            for (int64_t j = 0; j < e.K; ++j)
              if (const int64_t from = t - e.K + 1 + j; joins(b, t, from))
                taps[j] += g * double(x[(b * e.T + from) * e.C + c]);
          }
        for (int64_t j = 0; j < e.K; ++j) dw[c * e.K + j] = F(taps[j]);
        if (dbias != nullptr) dbias[c] = F(total);
      }
    });
  }
};

// Operands x, w, bias, segments from `first` on.
template <class F>
Conv<F> conv_of(const ConvShape& e, const LaunchArgs& args, int first) {
  const int behind = first + 2;
  return {e, args.in<F>(first), args.in<F>(first + 1), e.has_bias ? args.in<F>(behind) : nullptr,
          e.has_segments ? args.in<int32_t>(behind + (e.has_bias ? 1 : 0)) : nullptr};
}

}  // namespace

// x [B, T, C], w [C, K], bias [C], segments [B, T] -> y [B, T, C]
Result<PreparedKernel> prepare_causal_conv(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const ConvShape e(spec, 0);
    auto launch = [e](const LaunchArgs& args) { conv_of<F>(e, args, 0).run(args.pool, args.out<F>(0)); };
    return reference_kernel(spec, make_kernel(launch), e.flops());
  });
}

// dy [B, T, C] and those operands -> dx [B, T, C], dw [C, K], dbias [C]
Result<PreparedKernel> prepare_causal_conv_grad(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const ConvShape e(spec, 1);
    auto launch = [e](const LaunchArgs& args) {
      const Conv<F> conv = conv_of<F>(e, args, 1);
      conv.input_gradient(args.pool, args.in<F>(0), args.out<F>(0));
      conv.weight_gradient(args.pool, args.in<F>(0), args.out<F>(1), e.has_bias ? args.out<F>(2) : nullptr);
    };
    return reference_kernel(spec, make_kernel(launch), 3 * e.flops());
  });
}

}  // namespace tessera::cpu
