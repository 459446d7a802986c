// Bf16Gemm: C[m, n] = A[m, k] · B[k, n] of operands in bf16, with bias and activation fused.
//
// Bits: those that Gemm computes of the same numbers in f32, for any number of threads. Products of two numbers are exact
// in f32, and each addition of a chain is rounded to nearest. AVX512_BF16 has an instruction for two links of a chain
// (VDPBF16PS), which is emulated elsewhere. It takes numbers and sums below 2^-126 as zero; the emulation, and Gemm,
// which multiplies few rows, do not.
#pragma once

#include <cstdint>

#include "runtime/backends/cpu/cpu_kernel.h"
#include "runtime/backends/cpu/kernels/gemm.h"

namespace tessera::cpu {

struct Bf16Gemm {
  int64_t m = 0, n = 0, k = 0;
  // One of A's two strides is 1, and one of B's, as in Gemm.
  int64_t a_row = 0, a_col = 1;
  int64_t b_row = 0, b_col = 1;
  Activation activation = Activation::kNone;
  DType result = DType::kBF16;  // or f32: of C, pre and bias
};

struct Bf16GemmBuffers {
  const uint16_t* a = nullptr;
  const uint16_t* b = nullptr;
  const void* bias = nullptr;  // [n] or null
  void* c = nullptr;
  void* pre = nullptr;  // [m, n]: C before the activation; or null
  void* workspace = nullptr;
};

// Whether this CPU has the instruction.
bool has_bf16_products();
// The share of the f32 peak that these products reach, for time estimates.
inline double bf16_efficiency() { return has_bf16_products() ? 1.5 : 0.7; }

int64_t gemm_workspace_bytes(const Bf16Gemm& gemm);
void run_gemm(const Bf16Gemm& gemm, const Bf16GemmBuffers& buffers, const Pool& pool);

}  // namespace tessera::cpu
