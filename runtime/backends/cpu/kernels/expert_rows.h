// ExpertRows: the slots of an expert that hold a token, which are the first load[e, b] of every sequence.
#pragma once

#include <cstdint>

#include "runtime/backends/cpu/cpu_kernel.h"
#include "runtime/backends/cpu/factor_index.h"

namespace tessera::cpu {

class ExpertRows {
 public:
  // Operand 0 holds the slots [E, B, S, ...], operand 2, if any, the load [E, B].
  explicit ExpertRows(const KernelSpec& spec)
      : E(spec.input_dims(0)[0]),
        B(spec.input_dims(0)[1]),
        S(spec.input_dims(0)[2]),
        has_load_(spec.input_count() == 3),
        slots_(spec.factor('s')) {}

  int64_t taken(const LaunchArgs& args, int64_t expert, int64_t sequence) const {
    if (!has_load_) return S;
    const int64_t load = args.in<int32_t>(2)[expert * B + sequence];
    int64_t count = 0;
    while (count < S && slots_.to_global(count) < load) ++count;
    return count;
  }

  const int64_t E, B, S;

 private:
  const bool has_load_;
  const FactorIndex slots_;
};

}  // namespace tessera::cpu
