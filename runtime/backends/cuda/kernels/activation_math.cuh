// Activations and their derivatives in f32 or f64.
#pragma once

namespace tessera::cuda {

template <class W>
__device__ inline W sigmoid(W x) {
  return W(1) / (W(1) + exp(-x));
}
template <class W>
__device__ inline W silu(W x) {
  return x * sigmoid(x);
}
template <class W>
__device__ inline W silu_derivative(W x) {
  const W s = sigmoid(x);
  return s * (W(1) + x * (W(1) - s));
}

// x * sigmoid(1.702 x) and its derivative
template <class W>
__device__ inline W quick_gelu(W x) {
  return x * sigmoid(W(1.702) * x);
}
template <class W>
__device__ inline W quick_gelu_derivative(W x) {
  const W s = sigmoid(W(1.702) * x);
  return s * (W(1) + W(1.702) * x * (W(1) - s));
}

// x * Phi(x) and Phi(x) + x * phi(x)
template <class W>
__device__ inline W gelu_exact(W x) {
  return W(0.5) * x * (W(1) + erf(x * W(0.70710678118654752440)));
}
template <class W>
__device__ inline W gelu_exact_derivative(W x) {
  return W(0.5) * (W(1) + erf(x * W(0.70710678118654752440))) +
         x * W(0.39894228040143267794) * exp(W(-0.5) * x * x);
}

template <class W>
__device__ inline W gelu_tanh_inner(W x) {
  return tanh(W(0.79788456080286535588) * (x + W(0.044715) * x * x * x));
}
template <class W>
__device__ inline W gelu_tanh(W x) {
  return W(0.5) * x * (W(1) + gelu_tanh_inner(x));
}
template <class W>
__device__ inline W gelu_tanh_derivative(W x) {
  const W t = gelu_tanh_inner(x);
  return W(0.5) * (W(1) + t) +
         W(0.5) * x * (W(1) - t * t) * W(0.79788456080286535588) * (W(1) + W(3 * 0.044715) * x * x);
}

}  // namespace tessera::cuda
