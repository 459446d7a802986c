// SelectiveShape: sizes and options of a scan of tokens with a state of each channel.
#pragma once

#include <cstdint>

#include "runtime/backends/cpu/cpu_kernel.h"
#include "runtime/backends/cpu/kernels/state_scan_shape.h"

namespace tessera::cpu {

struct SelectiveShape {
  int64_t B, T, C, N;
  bool expands;

  // x is operand `x`, followed by step, and where the state is expanded by rate, b, c.
  SelectiveShape(const KernelSpec& spec, int x)
      : B(spec.input_dims(x)[0]),
        T(spec.input_dims(x)[1]),
        C(spec.input_dims(x)[2]),
        N(spec.i64("expand") == 1 ? spec.input_dims(x + 2)[1] : 1),
        expands(spec.i64("expand") == 1) {}

  int operand_count() const { return expands ? 5 : 2; }
  double flops() const { return double(B * T * C) * double(expands ? 14 * N : 10); }
};

}  // namespace tessera::cpu
