// The turn of a pair by its position's angle. Angles are made in f64: positions times small frequencies lose
// too much in f32.
#pragma once

#include "runtime/backends/cuda/kernels/element.cuh"

namespace tessera::cuda {

template <class W>
struct Turn {
  W sine, cosine;

  // Of pair i of a head of D.
  __device__ static Turn of(double signed_position, int64_t i, int64_t D, double log_theta) {
    double sine, cosine;
    sincos(signed_position * exp(-log_theta * static_cast<double>(2 * i) / static_cast<double>(D)), &sine,
           &cosine);
    return {static_cast<W>(sine), static_cast<W>(cosine)};
  }
  // Which product of the two is rounded is said, since compilers may choose otherwise from kernel to kernel.
  __device__ W first(W u, W v) const { return fma(u, cosine, -(v * sine)); }
  __device__ W second(W u, W v) const { return fma(u, sine, v * cosine); }
};

}  // namespace tessera::cuda
