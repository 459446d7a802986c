// RoundedBlock: activations rounded to 8 bits, as the reference kernels of products with blocks have them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "graph/base/dtype.h"
#include "graph/base/half.h"

namespace tessera::cpu {

inline float round_to_f16(float value) {
  const float magnitude = std::fabs(value);
  return magnitude >= 0x1p-14f && magnitude <= 65504.0f ? f32_from_f16(f16_from_f32(value)) : value;
}

// Activations rounded to 8 bits (quantized_activations-inl.h).
struct RoundedBlock {
  double values[256];
  double sum_error = 0;  // of their sum as it is stored, which minima of weights are multiplied by
};

template <class T>
void round_block(const T* x, int64_t count, RoundedBlock& out) {
  float most = 0;
  bool is_finite = true;
  for (int64_t i = 0; i < count; ++i) {
    most = std::max(most, std::fabs(static_cast<float>(x[i])));
    is_finite = is_finite && std::isfinite(static_cast<float>(x[i]));
  }
  const float scale = !is_finite      ? std::numeric_limits<float>::quiet_NaN()
                      : most < 1e-36f ? 0.0f
                                      : most / 127.0f;
  const float inverse = scale > 0 ? 127.0f / most : 0.0f;
  const float stored = count > 32 ? scale : round_to_f16(scale);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double code = std::nearbyint(static_cast<float>(x[i]) * inverse);
    out.values[i] = code * static_cast<double>(stored);
    sum += code;
  }
  out.sum_error =
      static_cast<double>(round_to_f16(scale * static_cast<float>(sum))) - static_cast<double>(stored) * sum;
}

// `sum` plus the products of x [K], rounded, and a row of blocks whose decoded values are `row` [K]; k ascending.
template <class T>
double add_rounded_products(DType type, const std::byte* blocks, const float* row, const T* x, int64_t K,
                            double sum) {
  const int64_t block = info(type).block_elements == 256 ? 256 : 32;
  // Every weight of such a block of 32 has a number added to it, the second f16 of the block.
  const bool has_minimum = type == DType::kQ4_1 || type == DType::kQ5_1;
  RoundedBlock rounded;
  for (int64_t k = 0; k < K; ++k) {
    if (k % block == 0) {
      round_block(x + k, std::min(block, K - k), rounded);
      if (has_minimum) {
        uint16_t bits = 0;
        std::memcpy(&bits, blocks + dtype_bytes(type, k) + sizeof bits, sizeof bits);
        sum += rounded.sum_error * static_cast<double>(f32_from_f16(bits));
      }
    }
    sum += rounded.values[k % block] * static_cast<double>(row[k]);
  }
  return sum;
}

}  // namespace tessera::cpu
