// Kernels for operands and results in bf16 that no row of the table takes: the f32 kernel of the op, on operands
// widened into the workspace; its results are rounded to nearest. Weights that an op takes in 16 bits by its
// definition stay as they are.
#pragma once

#include <string_view>

#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

inline constexpr std::string_view kWidened = "widened";

// The variant that a description asks for may be "widened" or "widened:ALGORITHM", for a row that has algorithms.
// kUnsupported: nothing is bf16, or no row takes f32 either.
Result<PreparedKernel> prepare_widened(const KernelSpec& spec);

}  // namespace tessera::cpu
