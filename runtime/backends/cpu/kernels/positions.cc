#include "runtime/backends/cpu/factor_index.h"
#include "runtime/backends/cpu/kernels/kernels.h"
#include "runtime/backends/cpu/kernels/row_kernel.h"

namespace tessera::cpu {

// start [B] -> y [B, T]. Wraps instead of overflowing: `start` is untrusted.
Result<PreparedKernel> prepare_positions(const KernelSpec& spec) {
  const int64_t B = spec.output_dims(0)[0], T = spec.output_dims(0)[1];
  const FactorIndex t_index(spec.factor('t'));
  auto launch = [=](const LaunchArgs& args) {
    const int32_t* start = args.in<int32_t>(0);
    int32_t* y = args.out<int32_t>(0);
    for (int64_t b = 0; b < B; ++b)
      for (int64_t t = 0; t < T; ++t) y[b * T + t] = static_cast<int32_t>(start[b] + t_index.to_global(t));
  };
  return reference_kernel(spec, make_kernel(launch), double(B * T));
}

}  // namespace tessera::cpu
