// Turn: the rotation of a pair by its position's angle. Angles are computed in f64: positions times small
// frequencies lose too much in f32.
#pragma once

#include "runtime/backends/cuda/kernels/element.cuh"

namespace tessera::cuda {

template <class W>
struct Turn {
  W sine, cosine;

  // The rotation of pair i of a head of D.
  __device__ static Turn of(double signed_position, int64_t i, int64_t D, double log_theta) {
    return by(signed_position * frequency(i, D, log_theta));
  }
  __device__ static Turn by(double angle) {
    double sine, cosine;
    sincos(angle, &sine, &cosine);
    return {static_cast<W>(sine), static_cast<W>(cosine)};
  }
  // The frequency of pair i of a head of D.
  __device__ static double frequency(int64_t i, int64_t D, double log_theta) {
    return exp(-log_theta * static_cast<double>(2 * i) / static_cast<double>(D));
  }
  // fma fixes which of the two products is rounded, since compilers may choose differently from kernel to
  // kernel.
  __device__ W first(W u, W v) const { return fma(u, cosine, -(v * sine)); }
  __device__ W second(W u, W v) const { return fma(u, sine, v * cosine); }
};

}  // namespace tessera::cuda
