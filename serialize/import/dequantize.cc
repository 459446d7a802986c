#include <cstring>

#include "graph/base/half.h"
#include "graph/base/status.h"
#include "serialize/import/gguf_file.h"

namespace tessera {
namespace {

uint16_t load_u16(const std::byte* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

}  // namespace

bool dequantize(DType dtype, std::span<const std::byte> stored, std::span<float> out) {
  TSR_CHECK(stored.size() == static_cast<size_t>(dtype_bytes(dtype, static_cast<int64_t>(out.size()))),
            "dequantize: bytes do not match the element count");
  const std::byte* bytes = stored.data();
  if (dtype == DType::kF32) {
    if (!out.empty()) std::memcpy(out.data(), bytes, out.size_bytes());
  } else if (dtype == DType::kF16) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = f32_from_f16(load_u16(bytes + 2 * i));
  } else if (dtype == DType::kBF16) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = f32_from_bf16(load_u16(bytes + 2 * i));
  } else if (dtype == DType::kQ8_0) {
    for (size_t block = 0; block < out.size() / 32; ++block, bytes += 34) {
      const float scale = f32_from_f16(load_u16(bytes));
      for (size_t i = 0; i < 32; ++i)
        out[32 * block + i] = static_cast<float>(static_cast<int8_t>(bytes[2 + i])) * scale;
    }
  } else if (dtype == DType::kQ4_0) {
    // Byte i holds element i in its low half and element 16 + i in its high half, both offset by 8.
    for (size_t block = 0; block < out.size() / 32; ++block, bytes += 18) {
      const float scale = f32_from_f16(load_u16(bytes));
      for (size_t i = 0; i < 16; ++i) {
        const int pair = static_cast<int>(bytes[2 + i]);
        out[32 * block + i] = static_cast<float>((pair & 15) - 8) * scale;
        out[32 * block + 16 + i] = static_cast<float>((pair >> 4) - 8) * scale;
      }
    }
  } else {
    return false;
  }
  return true;
}

}  // namespace tessera
