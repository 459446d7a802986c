// Conversion of f32 from and to bf16: to nearest, ties to even; a NaN stays one.
#pragma once

#include <cstdint>

#include "runtime/backends/cpu/cpu_kernel.h"

namespace tessera::cpu {

void widen_bf16(const uint16_t* in, float* out, int64_t count);
void round_to_bf16(const float* in, uint16_t* out, int64_t count);

// On the pool.
void widen_bf16(const Pool& pool, const uint16_t* in, float* out, int64_t count);
void round_to_bf16(const Pool& pool, const float* in, uint16_t* out, int64_t count);

}  // namespace tessera::cpu
