// What follows a product: bias, activation, and the value before it where it is wanted.
#pragma once

#include "runtime/backends/cuda/kernels/activation_math.cuh"
#include "runtime/backends/cuda/kernels/element.cuh"

namespace tessera::cuda {

enum class MatmulActivation { kNone, kRelu, kGelu, kSilu };

inline Result<MatmulActivation> matmul_activation(std::string_view name) {
  if (name == "none") return MatmulActivation::kNone;
  if (name == "relu") return MatmulActivation::kRelu;
  if (name == "gelu") return MatmulActivation::kGelu;
  if (name == "silu") return MatmulActivation::kSilu;
  return Status(StatusCode::kUnsupported, format("activation '{}' is not known to this kernel", name));
}

template <class W>
__device__ inline W activate(MatmulActivation activation, W x) {
  switch (activation) {
    case MatmulActivation::kRelu: return x > W(0) ? x : W(0);
    case MatmulActivation::kGelu: return gelu_tanh(x);
    case MatmulActivation::kSilu: return silu(x);
    default: return x;
  }
}

}  // namespace tessera::cuda
