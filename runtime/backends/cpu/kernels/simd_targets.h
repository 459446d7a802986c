// Instruction sets that every Highway file of this folder is compiled for: SSE4 as the baseline, AVX2 and
// AVX-512 (on other machines NEON). Each costs compile time, and further ones bring no gain to f32 code.
// Include it first in such a file. A CPU without the baseline runs the reference kernels: see simd_supported.
#pragma once

#include <cstdint>

#include "graph/base/text.h"
#include "runtime/backends/cpu/cpu_kernel.h"

#if defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_SSE4
#define HWY_DISABLED_TARGETS (HWY_AVX3_DL)
#else
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)  // lengths known at run time
#endif

namespace tessera::cpu {

// Success, or why this CPU cannot run the vector kernels.
Status simd_supported();

// Success if every float operand of `spec` is f32 and the CPU has the baseline; prepare functions call it
// first.
Status require_simd_f32(const KernelSpec& spec);

// A kernel bound by memory traffic: every operand is read or written once.
PreparedKernel simd_prepared(const KernelSpec& spec, double flops, std::unique_ptr<Kernel> kernel,
                             int64_t workspace_bytes = 0);

}  // namespace tessera::cpu
