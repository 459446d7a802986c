// Rows are unpacked to floats, which hold every code exactly; these become blocks, or are multiplied by their scales.
#include "serialize/import/code_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <vector>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/blocks/block_layout.h"
#include "graph/base/cancellation.h"
#include "graph/base/fp8.h"
#include "graph/base/half.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"

namespace tessera {
namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 20, kScanned = int64_t{1} << 16;
constexpr int64_t kInteger = 32;  // elements of a block of q4_0, q5_0 and q8_0
constexpr float kE2m1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
constexpr uint8_t kE8m0Nan = 255;

const std::array<float, 256>& e4m3_values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> made{};
    for (size_t code = 0; code < made.size(); ++code) made[code] = f32_from_fp8(static_cast<uint8_t>(code), kE4M3Format);
    return made;
  }();
  return values;
}

int64_t scale_bytes(const CodeMatrix& m) { return m.scales == CodeMatrix::Scales::kFloat ? dtype_bytes(m.scale_dtype, 1) : 1; }

// Scales [first, first + count) of the grid, row by row, without the factor.
Status read_scales(const CodeMatrix& m, int64_t first, std::span<float> out) {
  const int64_t size = scale_bytes(m);
  std::vector<std::byte> stored(out.size() * static_cast<size_t>(size));
  TSR_RETURN_IF_ERROR(m.source->read_at(m.scales_at + first * size, stored));
  switch (m.scales) {
    case CodeMatrix::Scales::kFloat: decode_blocks(m.scale_dtype, stored.data(), out.data(), std::ssize(out)); break;
    case CodeMatrix::Scales::kE4m3:
      std::ranges::transform(stored, out.begin(), [](std::byte code) { return e4m3_values()[static_cast<uint8_t>(code)]; });
      break;
    case CodeMatrix::Scales::kE8m0:
      std::ranges::transform(stored, out.begin(), [](std::byte code) {
        return static_cast<uint8_t>(code) == kE8m0Nan ? NAN : std::ldexp(1.0f, static_cast<int>(code) - 127);
      });
      break;
  }
  return {};
}

// ScaleFacts: conditions of block types on all scales.
struct ScaleFacts {
  bool are_f16 = true, are_positive = true;
};

Result<ScaleFacts> scan_scales(const CodeMatrix& m, std::string_view name) {
  const int64_t count = m.grid_rows() * m.grid_columns();
  std::vector<float> found(static_cast<size_t>(std::min(count, kScanned)));
  ScaleFacts facts;
  for (int64_t first = 0; first < count; first += std::ssize(found)) {
    cancellation_point();
    const std::span<float> part = std::span(found).first(static_cast<size_t>(std::min(count - first, std::ssize(found))));
    TSR_RETURN_IF_ERROR(read_scales(m, first, part));
    for (const float& scale : part) {
      if (!std::isfinite(scale))
        return Status(StatusCode::kCorrupt, format("tensor '{}' has {} at {}, wanted a finite number", quote(name), scale,
                                                   first + (&scale - part.data())));
      facts.are_f16 = facts.are_f16 && f32_from_f16(f16_from_f32(scale)) == scale;
      facts.are_positive = facts.are_positive && !std::signbit(scale);
    }
  }
  return facts;
}

Result<std::vector<int32_t>> read_groups(const CodeMatrix& m) {
  std::vector<int32_t> groups;
  if (!m.groups_at) return groups;
  groups.resize(static_cast<size_t>(m.K));
  TSR_RETURN_IF_ERROR(m.source->read_at(*m.groups_at, std::as_writable_bytes(std::span(groups))));
  return groups;
}

// Whether each block of integers lies within one group of columns.
Result<bool> groups_hold_blocks(const CodeMatrix& m) {
  if (!m.groups_at) return m.block_columns % kInteger == 0 || m.block_columns >= m.K;
  TSR_ASSIGN_OR_RETURN(const std::vector<int32_t> groups, read_groups(m));
  bool hold = true;
  for (size_t k = 0; k < groups.size(); ++k) hold = hold && groups[k] == groups[k / kInteger * kInteger];
  return hold;
}

// The least type of blocks of integers with room for every difference of a code and a zero point.
std::optional<DType> integer_blocks(const CodeMatrix& m) {
  const int64_t middle = m.codes == CodeMatrix::Codes::kI8 ? 128 : int64_t{1} << (m.bits - 1);
  int64_t least = -middle, most = middle - 1;
  if (m.zeros == CodeMatrix::Zeros::kPacked) least = 1 - 2 * middle, most = 2 * middle - 1;
  if (m.zeros == CodeMatrix::Zeros::kI8) least -= 127, most += 128;
  if (least >= -8 && most <= 7) return DType::kQ4_0;
  if (least >= -16 && most <= 15) return DType::kQ5_0;
  if (least >= -128 && most <= 127) return DType::kQ8_0;
  return std::nullopt;
}

template <class Block>
std::byte* put_block(const Block& block, std::byte* to) {
  std::memcpy(to, &block, sizeof block);
  return to + sizeof block;
}

// Rows: consecutive rows of a matrix, read at once.
class Rows {
 public:
  Rows(const CodeMatrix& m, int64_t first, int64_t count)
      : m_(m), first_(first), count_(count), first_grid_(first / m.block_rows), columns_(m.grid_columns()) {}

  Status read() {
    bytes_.resize(static_cast<size_t>(count_ * m_.row_bytes) + 1);  // one more, for codes across two bytes
    const std::span<uint8_t> codes = std::span(bytes_).first(bytes_.size() - 1);
    TSR_RETURN_IF_ERROR(m_.source->read_at(m_.codes_at + first_ * m_.row_bytes, std::as_writable_bytes(codes)));
    const int64_t grid_rows = (first_ + count_ - 1) / m_.block_rows + 1 - first_grid_;
    scales_.resize(static_cast<size_t>(grid_rows * columns_));
    TSR_RETURN_IF_ERROR(read_scales(m_, first_grid_ * columns_, scales_));
    TSR_RETURN_IF_ERROR(read_zeros(grid_rows));
    TSR_ASSIGN_OR_RETURN(groups_, read_groups(m_));
    numbers_.resize(static_cast<size_t>(m_.K));
    return {};
  }

  // Row `row`, from 0.
  std::byte* put(int64_t row, DType to, std::byte* out) {
    if (to == DType::kNVFP4) return put_nvfp4(row, out);
    if (to == DType::kMXFP4) return put_mxfp4(row, out);
    unpack(row);
    if (m_.zeros != CodeMatrix::Zeros::kNone)
      for (int64_t k = 0; k < m_.K; ++k) numbers_[static_cast<size_t>(k)] -= static_cast<float>(zero(row, column(k)));
    return is_block_type(to) ? put_integers(row, to, out) : put_floats(row, to, out);
  }

 private:
  int64_t column(int64_t k) const { return groups_.empty() ? k / m_.block_columns : groups_[static_cast<size_t>(k)]; }
  int64_t grid_row(int64_t row) const { return (first_ + row) / m_.block_rows - first_grid_; }
  float scale(int64_t row, int64_t column) const { return scales_[static_cast<size_t>(grid_row(row) * columns_ + column)]; }
  const uint8_t* codes(int64_t row) const { return bytes_.data() + row * m_.row_bytes; }

  Status read_zeros(int64_t grid_rows) {
    if (m_.zeros == CodeMatrix::Zeros::kI8) {
      zero_bytes_.resize(static_cast<size_t>(grid_rows * columns_));
      return m_.source->read_at(m_.zeros_at + first_grid_ * columns_, std::as_writable_bytes(std::span(zero_bytes_)));
    }
    if (m_.zeros == CodeMatrix::Zeros::kNone) return {};
    first_word_ = first_ * m_.bits / 32;
    const int64_t end = ((first_ + count_) * m_.bits + 31) / 32;
    zero_words_.resize(static_cast<size_t>((end - first_word_) * columns_));
    return m_.source->read_at(m_.zeros_at + first_word_ * columns_ * 4, std::as_writable_bytes(std::span(zero_words_)));
  }

  int32_t zero(int64_t row, int64_t column) const {
    if (m_.zeros == CodeMatrix::Zeros::kI8) return zero_bytes_[static_cast<size_t>(grid_row(row) * columns_ + column)];
    const int64_t bit = (first_ + row) * m_.bits, word = bit / 32 - first_word_, shift = bit % 32;
    const auto at = [&](int64_t i) { return uint64_t{zero_words_[static_cast<size_t>(i * columns_ + column)]}; };
    const uint64_t both = at(word) | (shift + m_.bits > 32 ? at(word + 1) << 32 : 0);
    return static_cast<int32_t>(both >> shift & ((1u << m_.bits) - 1)) - (1 << (m_.bits - 1));
  }

  void unpack(int64_t row) {
    const uint8_t* const from = codes(row);
    const auto fill = [&](auto&& number) {
      for (int64_t k = 0; k < m_.K; ++k) numbers_[static_cast<size_t>(k)] = number(k);
    };
    const uint32_t mask = (1u << m_.bits) - 1;
    const int32_t middle = 1 << (m_.bits - 1);
    switch (m_.codes) {
      case CodeMatrix::Codes::kPacked:
        return fill([&](int64_t k) {
          const int64_t bit = k * m_.bits;
          const uint32_t two = from[bit / 8] | uint32_t{from[bit / 8 + 1]} << 8;
          return static_cast<float>(static_cast<int32_t>(two >> (bit % 8) & mask) - middle);
        });
      case CodeMatrix::Codes::kI8: return fill([&](int64_t k) { return static_cast<float>(static_cast<int8_t>(from[k])); });
      case CodeMatrix::Codes::kE4m3: return fill([&](int64_t k) { return e4m3_values()[from[k]]; });
      case CodeMatrix::Codes::kE2m1: return fill([&](int64_t k) { return kE2m1[from[k / 2] >> (k % 2 * 4) & 15]; });
    }
  }

  std::byte* put_floats(int64_t row, DType to, std::byte* out) const {
    for (int64_t k = 0; k < m_.K;) {
      const int64_t at = column(k), end = groups_.empty() ? std::min(m_.K, (k / m_.block_columns + 1) * m_.block_columns) : k + 1;
      const float stored = scale(row, at), factor = m_.divides ? stored / m_.factor : stored * m_.factor;
      for (; k < end; ++k) {
        const float value = numbers_[static_cast<size_t>(k)] * factor;
        const uint16_t half = to == DType::kF16 ? f16_from_f32(value) : bf16_from_f32(value);
        const bool is_wide = to == DType::kF32;
        std::memcpy(out, is_wide ? static_cast<const void*>(&value) : &half, is_wide ? sizeof value : sizeof half);
        out += is_wide ? sizeof value : sizeof half;
      }
    }
    return out;
  }

  // Numbers as q4_0 (plus 8), q5_0 (plus 16) or q8_0.
  std::byte* put_integers(int64_t row, DType to, std::byte* out) const {
    for (int64_t k = 0; k < m_.K; k += kInteger) {
      const uint16_t d = f16_from_f32(scale(row, column(k)));
      const auto number = [&](int64_t i) { return static_cast<int32_t>(numbers_[static_cast<size_t>(k + i)]); };
      if (to == DType::kQ8_0) {
        BlockQ8_0 block{d, {}};
        for (int64_t i = 0; i < kInteger; ++i) block.codes[i] = static_cast<int8_t>(number(i));
        out = put_block(block, out);
      } else if (to == DType::kQ4_0) {
        BlockQ4_0 block{d, {}};
        for (int64_t i = 0; i < kInteger / 2; ++i)
          block.codes[i] = static_cast<uint8_t>((number(i) + 8) | (number(i + kInteger / 2) + 8) << 4);
        out = put_block(block, out);
      } else {
        BlockQ5_0 block{d, {}, {}};
        uint32_t high = 0;
        for (int64_t i = 0; i < kInteger; ++i) high |= static_cast<uint32_t>((number(i) + 16) >> 4) << i;
        std::memcpy(block.high, &high, sizeof high);
        for (int64_t i = 0; i < kInteger / 2; ++i)
          block.codes[i] = static_cast<uint8_t>(((number(i) + 16) & 15) | ((number(i + kInteger / 2) + 16) & 15) << 4);
        out = put_block(block, out);
      }
    }
    return out;
  }

  uint8_t code(int64_t row, int64_t k) const { return codes(row)[k / 2] >> (k % 2 * 4) & 15; }

  // The codes of both types, and scales of one byte, as they are: groups of 16, or blocks of 32, with the halves of each in the
  // low and the high nibbles.
  std::byte* put_nvfp4(int64_t row, std::byte* out) const {
    for (int64_t k = 0; k < m_.K; k += BlockNvfp4::kElements) {
      BlockNvfp4 block{};
      for (int64_t g = 0; g < 4; ++g) {
        block.scales[g] = fp8_from_f32(scale(row, k / 16 + g), kE4M3Format);
        for (int64_t i = 0; i < 8; ++i)
          block.codes[8 * g + i] = static_cast<uint8_t>(code(row, k + 16 * g + i) | code(row, k + 16 * g + 8 + i) << 4);
      }
      out = put_block(block, out);
    }
    return out;
  }

  std::byte* put_mxfp4(int64_t row, std::byte* out) const {
    for (int64_t k = 0; k < m_.K; k += BlockMxfp4::kElements) {
      BlockMxfp4 block{};
      block.exponent = static_cast<uint8_t>(std::ilogb(scale(row, k / BlockMxfp4::kElements)) + 127);
      for (int64_t i = 0; i < 16; ++i) block.codes[i] = static_cast<uint8_t>(code(row, k + i) | code(row, k + 16 + i) << 4);
      out = put_block(block, out);
    }
    return out;
  }

  const CodeMatrix& m_;
  const int64_t first_, count_, first_grid_, columns_;
  std::vector<uint8_t> bytes_;
  std::vector<float> scales_, numbers_;
  std::vector<int8_t> zero_bytes_;
  std::vector<uint32_t> zero_words_;
  int64_t first_word_ = 0;
  std::vector<int32_t> groups_;
};

}  // namespace

Result<std::optional<DType>> CodeMatrix::block_type(std::string_view name) const {
  TSR_ASSIGN_OR_RETURN(const ScaleFacts facts, scan_scales(*this, name));
  std::optional<DType> none;
  if (codes == Codes::kE4m3) return none;
  if (codes == Codes::kE2m1) {
    if (scales == Scales::kE4m3 && block_rows == 1 && block_columns == 16)
      return facts.are_positive && K % BlockNvfp4::kElements == 0 ? std::optional(DType::kNVFP4) : none;
    if (scales == Scales::kE8m0 && block_rows == 1 && block_columns == BlockMxfp4::kElements)
      return K % BlockMxfp4::kElements == 0 ? std::optional(DType::kMXFP4) : none;
    return none;
  }
  TSR_ASSIGN_OR_RETURN(const bool hold, groups_hold_blocks(*this));
  return hold && facts.are_f16 && K % kInteger == 0 ? integer_blocks(*this) : none;
}

Status CodeMatrix::decode(DType to, int64_t first, std::span<std::byte> out) const {
  const int64_t count = std::ssize(out) / dtype_bytes(to, K);
  Rows rows(*this, first, count);
  TSR_RETURN_IF_ERROR(rows.read());
  std::byte* at = out.data();
  for (int64_t row = 0; row < count; ++row) {
    cancellation_point();
    at = rows.put(row, to, at);
  }
  return {};
}

DecodedTensor CodeMatrix::decoded(DType to) const {
  const int64_t row = dtype_bytes(to, K), rows = std::clamp<int64_t>(kChunkBytes / row, 1, N);
  return {N * row, rows * row,
          [matrix = *this, to, rows](int64_t chunk, std::span<std::byte> out) { return matrix.decode(to, chunk * rows, out); }};
}

Status CodeMatrix::set_scales(const ForeignTensor& tensor, std::string_view name) {
  const bool is_float = tensor.dtype == DType::kF32 || tensor.dtype == DType::kF16 || tensor.dtype == DType::kBF16;
  const bool fits = scales == Scales::kFloat  ? is_float
                    : scales == Scales::kE4m3 ? tensor.type == "f8_e4m3"
                                              : tensor.type == "u8" || tensor.type == "f8_e8m0";
  if (!fits)
    return Status(StatusCode::kUnsupported, format("tensor '{}' is {}, wanted {}", quote(name), tensor.type,
                                                   scales == Scales::kFloat  ? "f32, f16 or bf16"
                                                   : scales == Scales::kE4m3 ? "f8_e4m3"
                                                                             : "u8 or f8_e8m0"));
  const auto without_ones = [](std::span<const int64_t> dims) {
    std::vector<int64_t> kept;
    std::ranges::copy_if(dims, std::back_inserter(kept), [](int64_t extent) { return extent != 1; });
    return kept;
  };
  if (without_ones(tensor.shape.dims()) != without_ones(std::array{grid_rows(), grid_columns()}))
    return Status(StatusCode::kCorrupt, format("tensor '{}' is [{}], wanted [{}, {}] for a weight [{}, {}]", quote(name),
                                               tensor.shape, grid_rows(), grid_columns(), N, K));
  scale_dtype = tensor.dtype;
  scales_at = tensor.offset;
  return {};
}

}  // namespace tessera
