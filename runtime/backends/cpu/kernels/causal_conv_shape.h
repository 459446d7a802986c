// ConvShape: sizes and options of a causal depthwise convolution.
#pragma once

#include <cstdint>

#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

inline constexpr int64_t kMostConvTaps = 8;

struct ConvShape {
  int64_t B, T, C, K;
  bool has_bias, has_segments, has_silu;

  // x is operand `x`, followed by w, bias, and what tells which tokens belong together.
  ConvShape(const KernelSpec& spec, int x)
      : B(spec.input_dims(x)[0]),
        T(spec.input_dims(x)[1]),
        C(spec.input_dims(x)[2]),
        K(spec.input_dims(x + 1)[1]),
        has_bias(spec.i64("bias") == 1),
        has_segments(spec.input_count() > x + 2 + (has_bias ? 1 : 0)),
        has_silu(!spec.string("activation").empty()) {}

  double flops() const { return double(B * T * C) * (2.0 * double(K) + (has_silu ? 5 : 0)); }
};

}  // namespace tessera::cpu
