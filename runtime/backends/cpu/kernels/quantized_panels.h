// Panels of a block matrix, unpacked: what every product with blocks multiplies. The forms are described in
// quantized_unpack_32-inl.h and quantized_unpack_k-inl.h.
#pragma once

#include "runtime/backends/cpu/kernels/quantized_layout.h"
#include "runtime/backends/cpu/kernels/quantized_rows.h"

namespace tessera::cpu {

// Unpacked blocks [block_begin, block_begin + block_count) of rows [row, row + lanes) are written to `out`,
// unpacked_block_bytes apart. Rows past the last one of W repeat it. block_begin * layout.elements() is a
// multiple of 256, and so is the end unless it is the end of K. In an interleaved matrix `row` is a multiple
// of the lanes.
void unpack_panel(const QuantizedLayout& layout, const BlockMatrix& w, int64_t row, int64_t block_begin,
                  int64_t block_count, std::byte* out);

}  // namespace tessera::cpu
