// Activations and their derivatives in double, for the reference kernels.
#pragma once

#include <cmath>

namespace tessera::cpu {

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double silu(double x) { return x * sigmoid(x); }
inline double silu_derivative(double x) {
  const double s = sigmoid(x);
  return s * (1 + x * (1 - s));
}

// x * sigmoid(1.702 x) and its derivative
inline constexpr double kQuickGelu = 1.702;
inline double quick_gelu(double x) { return x * sigmoid(kQuickGelu * x); }
inline double quick_gelu_derivative(double x) {
  const double s = sigmoid(kQuickGelu * x);
  return s * (1 + kQuickGelu * x * (1 - s));
}

// x * Phi(x) and Phi(x) + x * phi(x)
inline double gelu_exact(double x) { return 0.5 * x * (1 + std::erf(x * 0.70710678118654752440)); }
inline double gelu_exact_derivative(double x) {
  return 0.5 * (1 + std::erf(x * 0.70710678118654752440)) +
         x * 0.39894228040143267794 * std::exp(-0.5 * x * x);
}

inline constexpr double kSqrt2OverPi = 0.79788456080286535588;
inline double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(kSqrt2OverPi * (x + 0.044715 * x * x * x)));
}
inline double gelu_tanh_derivative(double x) {
  const double t = std::tanh(kSqrt2OverPi * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kSqrt2OverPi * (1 + 3 * 0.044715 * x * x);
}

}  // namespace tessera::cpu
