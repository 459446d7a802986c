// Scales of blocks as f16, for the CPU and, in CUDA files, for the device.
#pragma once

#include <cstdint>

#include "graph/base/half.h"

namespace tessera {

// Rounds a scale to the nearest finite f16. Tiny scales become the least
// number above zero, not zero, so that codes still distinguish values.
constexpr uint16_t f16_scale(float scale) {
  const float magnitude = scale < 0.0f ? -scale : scale;
  const uint16_t sign = scale < 0.0f ? 0x8000 : 0;
  if (magnitude >= 65504.0f) return sign | 0x7bff;
  if (!(magnitude >= 0x1p-26f)) return 0;
  const uint16_t bits = f16_from_f32(magnitude);
  return sign | (bits == 0 ? uint16_t{1} : bits);
}

// 1 / scale, and 0 for 0, which gives all elements the level nearest to 0.
constexpr float inverse_or_zero(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

}  // namespace tessera
