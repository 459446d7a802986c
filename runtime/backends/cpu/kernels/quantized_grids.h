// Blocks of the grid types (IQ1, IQ2, IQ3) as signed codes: x = scale * scales[j / 16] * codes[j].
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/base/dtype.h"

namespace tessera::cpu {

struct alignas(64) GridCodes {
  int8_t codes[256];
  int16_t scales[16];
  float scale;
};

using DecodeGrid = void(const std::byte* block, GridCodes* out);

void decode_iq1_s(const std::byte* block, GridCodes* out);
void decode_iq1_m(const std::byte* block, GridCodes* out);
void decode_iq2_xxs(const std::byte* block, GridCodes* out);
void decode_iq2_xs(const std::byte* block, GridCodes* out);
void decode_iq2_s(const std::byte* block, GridCodes* out);
void decode_iq3_xxs(const std::byte* block, GridCodes* out);
void decode_iq3_s(const std::byte* block, GridCodes* out);

}  // namespace tessera::cpu
