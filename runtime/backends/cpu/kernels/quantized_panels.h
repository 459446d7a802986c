// Panels of a block matrix, unpacked: what every product with blocks multiplies. The forms are described in
// quantized_unpack_32-inl.h and quantized_unpack_k-inl.h.
#pragma once

#include "runtime/backends/cpu/kernels/quantized_layout.h"
#include "runtime/backends/cpu/kernels/quantized_rows.h"

namespace tessera::cpu {

class PanelUnpacker {
 public:
  PanelUnpacker(const QuantizedLayout& layout, const BlockMatrix& w);

  // Writes unpacked blocks [block_begin, block_begin + block_count) of rows [row, row + lanes), block_bytes()
  // apart. Rows past the last one of W repeat it. block_begin * layout.elements() is a multiple of 256, and
  // so is the end unless it is the end of K. In an interleaved matrix `row` is a multiple of the lanes.
  //
  // `next`, or null: where the blocks begin that will be unpacked after these, as many; they are fetched.
  void unpack(int64_t row, int64_t block_begin, int64_t block_count, std::byte* out,
              const std::byte* next = nullptr) const;

  // First byte of a block of a row.
  const std::byte* find_block(int64_t row, int64_t block) const;
  int64_t block_bytes() const { return block_bytes_; }

 private:
  using UnpackBlocks = void(const std::byte* from, int64_t stride, int64_t count, int64_t block_bytes,
                            std::byte* out, const std::byte* next);

  void unpack_rows(int64_t row, int64_t block_begin, int64_t block_count, std::byte* out) const;
  void unpack_last_rows(int64_t row, int64_t block_begin, int64_t block_count, std::byte* out) const;

  const QuantizedLayout& layout_;
  BlockMatrix w_;
  int64_t lanes_, row_bytes_, file_bytes_, block_bytes_;
  UnpackBlocks* unpack_blocks_;  // null: row by row
};

}  // namespace tessera::cpu
