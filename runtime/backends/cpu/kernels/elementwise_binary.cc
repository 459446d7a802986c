#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"

namespace tessera::cpu {

Result<PreparedKernel> prepare_add(const KernelSpec& spec) {
  return map_binary(spec, 1, [](double x, double y) { return x + y; });
}
Result<PreparedKernel> prepare_sub(const KernelSpec& spec) {
  return map_binary(spec, 1, [](double x, double y) { return x - y; });
}
Result<PreparedKernel> prepare_mul(const KernelSpec& spec) {
  return map_binary(spec, 1, [](double x, double y) { return x * y; });
}
Result<PreparedKernel> prepare_div(const KernelSpec& spec) {
  return map_binary(spec, 1, [](double x, double y) { return x / y; });
}

}  // namespace tessera::cpu
