// Layouts of block matrices for the CPU's integer dot products: what a block's fields are, how rows of blocks
// are interleaved, and which dot product a type takes.
//
// A panel is kLanes consecutive rows of W (4, 8 or 16: as many as a vector has 32-bit lanes). Interleaved,
// each field of a panel's block is cut into units of at most four bytes, and unit u of the panel's rows are
// consecutive: lane r of a vector belongs to row r. The bytes are those of the file, permuted within the
// panel; rows after the last whole panel stay as in the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "graph/base/dtype.h"

namespace tessera::cpu {

// Dot products, by the form that a panel is unpacked to.
//   kUnsigned32: 32 elements; codes u8, one f32 scale (and minimum)
//   kSigned32:   32 elements; codes i16, one f32 scale, or one for each half
//   kUnsigned256: 256 elements; codes u8, integer scales of 16 elements, f32 scale (and minimum)
//   kSigned256:  256 elements; codes i16 with integer scales multiplied in, one f32 scale
//   kTable64:    64 elements; codes of four bits that number f32 values, one f32 scale: products of f32 alone, whose
//                decoder reads rows as the file has them (quantized_unpack_nf4-inl.h)
//   kWide32, kWide256: signed codes as u8, 128 above their values, else as the unsigned forms; for a CPU that
//                sums products of bytes in 32 bits (VNNI). The bits are those of the signed forms.
enum class DotForm : uint8_t {
  kUnsigned32,
  kSigned32,
  kUnsigned256,
  kSigned256,
  kTable64,
  kWide32,
  kWide256
};

// `units` of `bytes` bytes each; a block's fields follow each other without gaps.
struct BlockField {
  uint8_t bytes = 0, units = 0;
};

struct QuantizedLayout {
  DType type;
  DotForm form;
  uint8_t offset;        // what unsigned codes are above the values they stand for
  bool has_min;          // x = scale * code + (or -) minimum
  bool half_scales;      // kSigned32: a scale for 16 elements
  BlockField fields[5];  // none: the type is unpacked from rows and never interleaved

  bool can_interleave() const { return fields[0].units > 0; }
  bool is_super() const {
    return form == DotForm::kUnsigned256 || form == DotForm::kSigned256 || form == DotForm::kWide256;
  }
  // Number of elements of an unpacked block.
  int64_t elements() const { return is_super() ? 256 : form == DotForm::kTable64 ? 64 : 32; }
};

// Null for types that have no blocks.
const QuantizedLayout* find_quantized_layout(DType type);
// The same, for a type that has blocks.
const QuantizedLayout& quantized_layout(DType type);
// The wide form if the type has one, else the plain one.
const QuantizedLayout& wide_quantized_layout(DType type);

// Bytes of `lanes` rows of one unpacked block, and of one row of one quantised block of activations. Both are
// multiples of 16; kTable64 has neither, and 0.
int64_t unpacked_block_bytes(const QuantizedLayout& layout, int64_t lanes);
int64_t activation_block_bytes(const QuantizedLayout& layout);

}  // namespace tessera::cpu
