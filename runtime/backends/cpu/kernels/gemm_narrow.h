// Narrow products: Gemm with a few columns, or a few rows by a column-major A, which are what low-rank adapters multiply
// and what their gradients are made of. The large operand is read once, where it is; packing it would take longer than
// the product. Bits are those of the packed kernel: see gemm.h.
#pragma once

#include "runtime/backends/cpu/kernels/gemm.h"

namespace tessera::cpu {

bool is_narrow_gemm(const Gemm& gemm);
int64_t narrow_gemm_workspace_bytes(const Gemm& gemm);
void run_narrow_gemm(const Gemm& gemm, const GemmBuffers& buffers, const Pool& pool);

// Columns [begin, end) of C = A · B by dot products (gemm_skinny.cc): transposed B, any number of rows, no bias and
// activation. Element (i, j) is stored at c[j * m + i].
void run_transposed_dots(const Gemm& gemm, const GemmBuffers& buffers, int64_t begin, int64_t end);

}  // namespace tessera::cpu
