// CodeMatrix: a matrix [N, K] as a file has it: codes, and a grid of scales and zero points.
// number = (code - zero point) * scale. Read row by row, never whole.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "graph/base/dtype.h"
#include "graph/base/result.h"
#include "serialize/import/decoded_source.h"
#include "serialize/import/foreign_file.h"

namespace tessera {

struct CodeMatrix {
  enum class Codes : uint8_t {
    kPacked,  // unsigned integers of `bits` bits, the first in the lowest; 2^(bits - 1) is 0
    kI8,
    kE4m3,
    kE2m1,  // two a byte, the first low
  };
  enum class Scales : uint8_t { kFloat, kE4m3, kE8m0 };
  enum class Zeros : uint8_t { kNone, kPacked, kI8 };  // kPacked: as codes, with the rows of a column in its words

  std::shared_ptr<const ByteSource> source;
  int64_t N = 0, K = 0;
  Codes codes = Codes::kI8;
  int64_t bits = 8, codes_at = 0, row_bytes = 0;
  Scales scales = Scales::kFloat;
  DType scale_dtype = DType::kF32;  // kFloat: f32, f16 or bf16
  int64_t scales_at = 0;
  int64_t block_rows = 1, block_columns = 1;  // elements of one scale
  float factor = 1;                           // of all scales
  bool divides = false;                       // by the factor, instead of times it
  Zeros zeros = Zeros::kNone;
  int64_t zeros_at = 0;
  std::optional<int64_t> groups_at;  // i32 [K]: for each column of the matrix one of the grid, which the caller has checked

  int64_t grid_rows() const { return (N + block_rows - 1) / block_rows; }
  int64_t grid_columns() const { return (K + block_columns - 1) / block_columns; }
  DType float_type() const { return scales == Scales::kFloat ? scale_dtype : DType::kBF16; }

  // The block type with the same numbers (those of nvfp4 without the factor), if there is one. Reads all scales.
  // kCorrupt: one is not finite; `name` is that of their tensor.
  Result<std::optional<DType>> block_type(std::string_view name) const;

  // Rows from `first`, as many as `out` holds, in float_type() (rounded once from f32), f32, or block_type().
  Status decode(DType to, int64_t first, std::span<std::byte> out) const;

  // All rows as `to`.
  DecodedTensor decoded(DType to) const;

  // Takes the scales of the form `scales` from a tensor. kUnsupported for another type than the form's, kCorrupt for
  // another shape than the grid's; extents of 1 do not count.
  Status set_scales(const ForeignTensor& tensor, std::string_view name);
};

}  // namespace tessera
