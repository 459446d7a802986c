// One token's step of a state's column, the reference of every scan.
#pragma once

#include <cmath>
#include <cstdint>

#include "runtime/backends/cpu/kernels/state_scan_shape.h"

namespace tessera::cpu {

template <class F>
struct ScanOperands {
  const F *q, *k, *v, *log_decay, *beta;
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
  double gap = double(x.v[row * e.V + v]);
  if (e.corrects)
    for (int64_t i = 0; i < e.K; ++i) gap -= decayed(i) * double(key[i]);
  double sum = 0;
  for (int64_t i = 0; i < e.K; ++i) {
    state[i] = F(decayed(i) + double(key[i]) * double(x.beta[row]) * gap);
    sum += double(state[i]) * double(query[i]);
  }
  return F(e.scale * sum);
}

}  // namespace tessera::cpu
