// Epilogue of a matmul: bias, activation, and optionally the value before it.
#pragma once

#include "runtime/backends/cuda/kernels/activation_math.cuh"
#include "runtime/backends/cuda/kernels/element.cuh"
#include "runtime/backends/cuda/kernels/matmul_activation.h"

namespace tessera::cuda {

template <class W>
__device__ inline W activate(MatmulActivation activation, W x) {
  switch (activation) {
    case MatmulActivation::kRelu: return x > W(0) ? x : W(0);
    case MatmulActivation::kGelu: return gelu_tanh(x);
    case MatmulActivation::kSilu: return silu(x);
    default: return x;
  }
}

// Stores the sum of element (m, n) through the epilogue; the batch is ignored.
template <class T>
struct StoreActivated {
  const T* bias;  // null for none
  T *y, *pre;
  int64_t N;
  MatmulActivation activation;
  __device__ void operator()(int64_t, int64_t m, int64_t n, Wide<T> sum) const {
    if (bias != nullptr) sum += widen(bias[n]);
    if (pre != nullptr) pre[m * N + n] = narrow<T>(sum);
    y[m * N + n] = narrow<T>(activate(activation, sum));
  }
};

}  // namespace tessera::cuda
