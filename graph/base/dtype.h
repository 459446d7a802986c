// DType: element types. Block types (q8_0, q4_0) store `block_elements` elements in `block_bytes` bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Values are stored in files and cross the plugin ABI: append, never renumber.
enum class DType : uint8_t {
  kF32 = 0,
  kF64 = 1,
  kF16 = 2,
  kBF16 = 3,
  kI32 = 4,
  kI64 = 5,
  kI8 = 6,
  kU8 = 7,
  kQ8_0 = 8,  // GGML: 32 elements as f16 scale + 32 i8
  kQ4_0 = 9,  // GGML: 32 elements as f16 scale + 16 bytes of nibbles
  kE4M3 = 10,  // codes of 8-bit floats; a value needs the tensor's scale too (fp8.h)
  kE5M2 = 11,
};
inline constexpr int kDTypeCount = 12;

struct DTypeInfo {
  std::string_view name;   // "f32", "q8_0"
  int32_t block_elements;  // 1 for plain types
  int32_t block_bytes;
  bool is_float;           // may carry gradients
};

const DTypeInfo& info(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);
inline std::string to_text(DType dtype) { return std::string(info(dtype).name); }

// Bytes of `count` elements; `count` is a multiple of block_elements.
int64_t dtype_bytes(DType dtype, int64_t count);

}  // namespace tessera
