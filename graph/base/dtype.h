// DType: element types. Block types (q4_0 to nvfp4, nf4) store `block_elements` consecutive elements of the last
// dimension in `block_bytes` bytes, as GGUF files do (nf4: as bitsandbytes does); graph/base/blocks/ decodes and encodes
// them.
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
  kQ4_1 = 12,
  kQ5_0 = 13,
  kQ5_1 = 14,
  kQ2_K = 15,
  kQ3_K = 16,
  kQ4_K = 17,
  kQ5_K = 18,
  kQ6_K = 19,
  kIQ1_S = 20,
  kIQ1_M = 21,
  kIQ2_XXS = 22,
  kIQ2_XS = 23,
  kIQ2_S = 24,
  kIQ3_XXS = 25,
  kIQ3_S = 26,
  kIQ4_NL = 27,
  kIQ4_XS = 28,
  kTQ1_0 = 29,
  kTQ2_0 = 30,
  kMXFP4 = 31,
  kNVFP4 = 32,
  kQ1_0 = 33,
  kQ2_0 = 34,
  kNF4 = 35,  // QLoRA: 64 elements as f32 scale + 32 bytes of nibbles
};
inline constexpr int kDTypeCount = 36;

struct DTypeInfo {
  std::string_view name;   // "f32", "q8_0"
  int32_t block_elements;  // 1 for plain types
  int32_t block_bytes;
  bool is_float;           // may carry gradients
};

const DTypeInfo& info(DType dtype);
inline bool is_block_type(DType dtype) { return info(dtype).block_elements > 1; }
// Whether the codes are integers, as products with activations of 8 bits need.
inline bool has_integer_codes(DType dtype) { return is_block_type(dtype) && dtype != DType::kNF4; }
inline bool is_half_type(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }
// Whether ops that compute in a wider type may read weights of this one.
inline bool is_narrow_type(DType dtype) { return is_half_type(dtype) || is_block_type(dtype); }
std::optional<DType> dtype_from_name(std::string_view name);
inline std::string to_text(DType dtype) { return std::string(info(dtype).name); }

// Bytes of `count` elements; `count` is a multiple of block_elements.
int64_t dtype_bytes(DType dtype, int64_t count);

}  // namespace tessera
