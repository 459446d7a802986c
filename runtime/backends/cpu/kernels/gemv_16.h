// Products of a few rows in f32 with a matrix of 16-bit floats: each number of the matrix is read once and widened
// in registers, so that memory's bandwidth is the ceiling.
#pragma once

#include <algorithm>
#include <cstdint>

#include "graph/base/dtype.h"

namespace tessera::cpu {

inline constexpr int64_t kGemv16Rows = 8;

// x [M, K] f32, w [N, K] of `type` (bf16 or f16), bias [N] or null -> y [M, N].
struct Gemv16 {
  DType type = DType::kBF16;
  int64_t M = 0, N = 0, K = 0;  // M at most kGemv16Rows
  const float* x = nullptr;
  const uint16_t* w = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
};

// Computes y[:, begin..end). Each number's bits depend on M, K, its row of x and of w, and the instruction set; not
// on the ranges.
void multiply_gemv_16(const Gemv16& gemv, int64_t begin, int64_t end);

// Rows of w that make a task: 64 KiB, enough to hand out, and a multiple of 4.
inline int64_t gemv_16_grain(int64_t K) {
  return std::max<int64_t>(4, (int64_t{32} << 10) / std::max<int64_t>(K, 1) / 4 * 4);
}

}  // namespace tessera::cpu
