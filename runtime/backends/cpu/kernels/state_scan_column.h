// One token's step of a state's column, the reference of every scan.
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/backends/cpu/kernels/state_scan_shape.h"

namespace tessera::cpu {

// Operands from q, number `first`, on: beta, or with rule general a and b.
template <class F>
struct ScanOperands {
  const F *q, *k, *v, *log_decay, *beta, *a, *b;

  ScanOperands(const ScanShape& e, const LaunchArgs& args, int first)
      : q(args.in<F>(first)),
        k(args.in<F>(first + 1)),
        v(args.in<F>(first + 2)),
        log_decay(args.in<F>(first + 3)),
        beta(e.is_general() ? nullptr : args.in<F>(first + 4)),
        a(e.is_general() ? args.in<F>(first + 4) : nullptr),
        b(e.is_general() ? args.in<F>(first + 5) : nullptr) {}
};

// Updates `state` [K], column v of value head h, by token `token` of B * T; returns the token's result. The state is rounded
// after every token, so that it does not matter in which steps tokens come.
template <class F>
F scan_column(const ScanShape& e, const ScanOperands<F>& x, int64_t token, int64_t h, int64_t v, F* state) {
  const int64_t row = e.value_row(token, h), key_row = e.key_row(token, h / e.group());
  const F *query = x.q + key_row * e.K, *key = x.k + key_row * e.K;
  const F* log_decay = x.log_decay + row * e.decays();
  const double decay = e.decays_by_channel ? 0 : std::exp(double(log_decay[0]));
  const auto decayed = [&](int64_t i) {
    return (e.decays_by_channel ? std::exp(double(log_decay[i])) : decay) * double(state[i]);
  };
  double read = 0, change = double(x.v[row * e.V + v]), sum = 0;
  for (int64_t i = 0; i < e.K && e.is_general(); ++i) read += double(state[i]) * double(x.a[key_row * e.K + i]);
  for (int64_t i = 0; i < e.K && e.rule == ScanRule::kDelta; ++i) read += decayed(i) * double(key[i]);
  if (!e.is_general()) change = double(x.beta[row]) * (change - read);
  for (int64_t i = 0; i < e.K; ++i) {
    const double correction = e.is_general() ? double(x.b[key_row * e.K + i]) * read : 0;
    state[i] = F(decayed(i) + correction + double(key[i]) * change);
    sum += double(state[i]) * double(query[i]);
  }
  return F(e.scale * sum);
}

}  // namespace tessera::cpu
