// dequantize: stored element types to f32, with the bits that GGML defines.
#pragma once

#include <cstddef>
#include <span>

#include "graph/base/dtype.h"
#include "graph/base/half.h"

namespace tessera {

// f32, f16, bf16, q8_0 and q4_0; false for other types. `stored` holds out.size() elements, `out` whole
// blocks.
bool dequantize(DType dtype, std::span<const std::byte> stored, std::span<float> out);

}  // namespace tessera
