#include <algorithm>

#include "runtime/backends/cpu/kernels/activation_math.h"
#include "runtime/backends/cpu/kernels/causal_conv_shape.h"
#include "runtime/backends/cpu/kernels/recurrent_kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"
#include "runtime/backends/cpu/kernels/row_tokens.h"

namespace tessera::cpu {

namespace {

template <class F>
struct ConvRows {
  ConvShape e;
  const F *x, *w, *bias;  // bias may be null
  const int32_t* position;
  F *state, *y;

  // The tokens of a row, channel c.
  void channel(const RowTokens& tokens, int64_t row, int64_t c) const {
    F* const past = state + row * (e.K - 1) * e.C + c;  // K - 1 inputs, C apart
    F seen[kMostConvTaps] = {};                         // the last ones, this token's behind
    for (int64_t j = 0; j + 1 < e.K; ++j) seen[j] = past[j * e.C];
    for (const int64_t token : tokens.of(row)) {
      if (position[token] == 0) std::fill_n(seen, e.K - 1, F(0));
      seen[e.K - 1] = x[token * e.C + c];
      double sum = bias == nullptr ? 0 : double(bias[c]);
      for (int64_t j = 0; j < e.K; ++j) sum += double(w[c * e.K + j]) * double(seen[j]);
      y[token * e.C + c] = F(e.has_silu ? silu(sum) : sum);
      std::copy_n(seen + 1, e.K - 1, seen);
    }
    for (int64_t j = 0; j + 1 < e.K; ++j) past[j * e.C] = seen[j];
  }
};

}  // namespace

// state [R, K - 1, C], x [B, N, C], w [C, K], bias [C], row, position [B, N] -> y [B, N, C], state
Result<PreparedKernel> prepare_causal_conv_rows(const KernelSpec& spec) {
  return dispatch_float(spec.input_dtype(1), [&](auto zero) -> Result<PreparedKernel> {
    using F = decltype(zero);
    const ConvShape e(spec, 1);
    const int64_t R = spec.input_dims(0)[0], tokens = e.B * e.T, state_count = spec.input_elements(0);
    const int row = spec.input_count() - 2;
    auto launch = [=](const LaunchArgs& args) {
      const RowTokens by_row(R, args.in<int32_t>(row), tokens, args.workspace);
      const ConvRows<F> conv{e,
                             args.in<F>(1),
                             args.in<F>(2),
                             e.has_bias ? args.in<F>(3) : nullptr,
                             args.in<int32_t>(row + 1),
                             args.out<F>(1),
                             args.out<F>(0)};
      begin_rows<F>(args, by_row, e.C, state_count);
      args.pool.parallel_for(by_row.active_count(), [&](int64_t task) {
        for (int64_t c = 0; c < e.C; ++c) conv.channel(by_row, by_row.active(task), c);
      });
    };
    return reference_kernel(spec, make_kernel(launch), e.flops(), RowTokens::bytes(R, tokens));
  });
}

}  // namespace tessera::cpu
