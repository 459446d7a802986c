#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"

namespace tessera::cpu {

Result<PreparedKernel> prepare_clamp(const KernelSpec& spec) {
  return map_unary(spec, 2, [least = spec.f64("min"), most = spec.f64("max")](double x) {
    return x < least ? least : x > most ? most : x;
  });
}

// x, dy -> dx
Result<PreparedKernel> prepare_clamp_grad(const KernelSpec& spec) {
  return map_binary(spec, 2, [least = spec.f64("min"), most = spec.f64("max")](double x, double dy) {
    return x >= least && x <= most ? dy : 0;
  });
}

}  // namespace tessera::cpu
