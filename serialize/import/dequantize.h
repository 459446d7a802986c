// Stored element types to f32, bit for bit as GGML defines them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "graph/base/dtype.h"

namespace tessera {

float f32_from_f16(uint16_t bits);
float f32_from_bf16(uint16_t bits);

// f32, f16, bf16, q8_0 and q4_0; false for other types. `stored` holds out.size() elements, `out` whole
// blocks.
bool dequantize(DType dtype, std::span<const std::byte> stored, std::span<float> out);

}  // namespace tessera
