#include "runtime/backends/cpu/kernels/activation_math.h"
#include "runtime/backends/cpu/kernels/elementwise.h"
#include "runtime/backends/cpu/kernels/kernels.h"

namespace tessera::cpu {

Result<PreparedKernel> prepare_relu(const KernelSpec& spec) {
  return map_unary(spec, 1, [](double x) { return x > 0 ? x : 0; });
}
Result<PreparedKernel> prepare_relu_grad(const KernelSpec& spec) {
  return map_binary(spec, 1, [](double x, double dy) { return x > 0 ? dy : 0; });
}

Result<PreparedKernel> prepare_gelu(const KernelSpec& spec) {
  if (spec.string("approximate") == "tanh") return map_unary(spec, 14, gelu_tanh);
  return map_unary(spec, 14, gelu_exact);
}
Result<PreparedKernel> prepare_gelu_grad(const KernelSpec& spec) {
  if (spec.string("approximate") == "tanh")
    return map_binary(spec, 22, [](double x, double dy) { return dy * gelu_tanh_derivative(x); });
  return map_binary(spec, 22, [](double x, double dy) { return dy * gelu_exact_derivative(x); });
}

Result<PreparedKernel> prepare_silu(const KernelSpec& spec) { return map_unary(spec, 8, silu); }
Result<PreparedKernel> prepare_silu_grad(const KernelSpec& spec) {
  return map_binary(spec, 12, [](double x, double dy) { return dy * silu_derivative(x); });
}

Result<PreparedKernel> prepare_quick_gelu(const KernelSpec& spec) { return map_unary(spec, 9, quick_gelu); }
Result<PreparedKernel> prepare_quick_gelu_grad(const KernelSpec& spec) {
  return map_binary(spec, 13, [](double x, double dy) { return dy * quick_gelu_derivative(x); });
}

Result<PreparedKernel> prepare_tanh(const KernelSpec& spec) {
  return map_unary(spec, 8, [](double x) { return std::tanh(x); });
}
Result<PreparedKernel> prepare_tanh_grad(const KernelSpec& spec) {
  return map_binary(spec, 3, [](double y, double dy) { return dy * (1 - y * y); });
}

Result<PreparedKernel> prepare_sigmoid(const KernelSpec& spec) { return map_unary(spec, 7, sigmoid); }
Result<PreparedKernel> prepare_sigmoid_grad(const KernelSpec& spec) {
  return map_binary(spec, 3, [](double y, double dy) { return dy * y * (1 - y); });
}

}  // namespace tessera::cpu
