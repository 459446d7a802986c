// Products with blocks of every type, and what they should be: sums in double over decoded blocks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/half.h"
#include "runtime/backends/cpu/kernels/quantized_layout.h"
#include "runtime/backends/cpu/kernels/quantized_rows.h"

namespace tessera::cpu {

// What errors may be, in units of 2^-24 of the sum of magnitudes: rounding an f32 to nearest moves it by one at
// most. Q8: exact sums of blocks, then one chain over the blocks. F32 and the gradient: chains of 256 and of 64
// multiply-adds, of weights that are within two units of scale * code and of the minimum, which cancel in part.
// The worst case of a chain is its length; of random numbers most roundings cancel.
inline constexpr double kQ8Error = 4, kF32Error = 8, kGradientError = 16;

inline constexpr DType kBlockTypes[] = {
    DType::kQ4_0,    DType::kQ4_1,   DType::kQ5_0,  DType::kQ5_1,    DType::kQ8_0,  DType::kIQ4_NL,
    DType::kMXFP4,   DType::kNVFP4,  DType::kQ1_0,  DType::kQ2_0,    DType::kQ2_K,  DType::kQ3_K,
    DType::kQ4_K,    DType::kQ5_K,   DType::kQ6_K,  DType::kIQ4_XS,  DType::kIQ1_S, DType::kIQ1_M,
    DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S, DType::kIQ3_XXS, DType::kIQ3_S, DType::kTQ1_0,
    DType::kTQ2_0,   DType::kNF4};

struct Random {
  uint32_t state;
  uint32_t next() { return (state = state * 1664525u + 1013904223u) >> 8; }
  float uniform() { return static_cast<float>(next()) / 16777216.0f - 0.5f; }
};

// Offsets of f16 scales in a block.
inline std::vector<size_t> scale_offsets(DType type) {
  switch (type) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K: return {0, 2};
    case DType::kQ2_K: return {80, 82};
    case DType::kQ3_K: return {108};
    case DType::kQ6_K: return {208};
    case DType::kTQ1_0: return {52};
    case DType::kTQ2_0: return {64};
    case DType::kMXFP4:
    case DType::kNVFP4:
    case DType::kNF4:
    case DType::kIQ1_M: return {};
    default: return {0};
  }
}

// Blocks of any bytes, or all the same, with scales between -0.05 and 0.05.
inline std::vector<std::byte> make_blocks(DType type, int64_t count, uint32_t seed, int fill = -1) {
  std::vector<std::byte> bytes(static_cast<size_t>(dtype_bytes(type, count)));
  Random random{seed};
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(fill < 0 ? random.next() & 255 : fill);
  const auto block_bytes = static_cast<size_t>(info(type).block_bytes);
  for (size_t block = 0; block < bytes.size(); block += block_bytes) {
    for (const size_t offset : scale_offsets(type)) {
      const uint16_t scale = f16_from_f32(random.uniform() * 0.1f);
      std::memcpy(&bytes[block + offset], &scale, sizeof scale);
    }
    if (type == DType::kNF4) {
      const float scale = random.uniform() * 0.1f;
      std::memcpy(&bytes[block], &scale, sizeof scale);
    }
    if (type == DType::kMXFP4) bytes[block] = static_cast<std::byte>(118 + random.next() % 8);
    if (type == DType::kIQ1_M) {  // the nibbles of an f16 on top of its four scales
      const uint16_t scale = f16_from_f32(random.uniform() * 0.1f);
      for (int i = 0; i < 4; ++i) {
        std::byte& top = bytes[block + 48 + 2 * static_cast<size_t>(i) + 1];
        top = (top & std::byte{15}) | static_cast<std::byte>((scale >> 4 * i & 15) << 4);
      }
    }
  }
  return bytes;
}

struct Sums {
  double sum = 0, magnitude = 0;
  void add(double value) {
    sum += value;
    magnitude += std::fabs(value);
  }
};

inline float round_to_f16(float value) {
  const float magnitude = std::fabs(value);
  return magnitude >= 0x1p-14f && magnitude <= 65504.0f ? f32_from_f16(f16_from_f32(value)) : value;
}

// x quantised as the header says, in double; and by block of 32 how far the stored sum of its values is off.
struct QuantizedRows {
  std::vector<double> values, sum_errors;

  QuantizedRows(DType type, const std::vector<float>& x) : values(x.size()) {
    const auto elements = static_cast<size_t>(find_quantized_layout(type)->elements());
    for (size_t block = 0; block < x.size(); block += elements) {
      float most = 0;
      for (size_t i = block; i < block + elements; ++i) most = std::max(most, std::fabs(x[i]));
      const float inverse = most > 0 ? 127.0f / most : 0.0f, scale = most / 127.0f;
      const double stored = elements == 32 ? round_to_f16(scale) : scale;
      double codes = 0;
      for (size_t i = block; i < block + elements; ++i) {
        const double code = std::nearbyint(x[i] * inverse);
        values[i] = code * stored;
        codes += code;
      }
      if (elements == 32)
        sum_errors.push_back(static_cast<double>(round_to_f16(scale * static_cast<float>(codes))) -
                             stored * codes);
    }
  }
};

// Whether every weight of a block of 32 has a number added to it, the second f16 of the block.
inline bool has_minimum(DType type) { return type == DType::kQ4_1 || type == DType::kQ5_1; }

inline double minimum_of(const std::byte* block) {
  uint16_t bits = 0;
  std::memcpy(&bits, block + sizeof bits, sizeof bits);
  return f32_from_f16(bits);
}

struct Problem {
  DType type;
  int64_t M, N, K;
  std::vector<std::byte> blocks, interleaved;
  std::vector<float> w, x, bias;

  Problem(DType type, int64_t M, int64_t N, int64_t K, int fill = -1) : type(type), M(M), N(N), K(K) {
    blocks = make_blocks(type, N * K, 7, fill);
    w.resize(static_cast<size_t>(N * K));
    decode_blocks(type, blocks.data(), w.data(), N * K);
    Random random{11};
    x.resize(static_cast<size_t>(M * K));
    // If all codes are equal, activations are at their limits too.
    for (float& value : x) value = fill < 0 ? random.uniform() : random.uniform() < 0.3f ? 0.5f : -0.5f;
    bias.resize(static_cast<size_t>(N));
    for (float& value : bias) value = random.uniform();
  }

  std::vector<float> make_gradient() const {
    std::vector<float> dy(static_cast<size_t>(M * N));
    Random random{5};
    for (float& value : dy) value = random.uniform();
    return dy;
  }
  BlockMatrix matrix() const { return {.type = type, .N = N, .K = K, .data = blocks.data()}; }
  BlockMatrix interleave() {
    interleaved.assign(blocks.size(), std::byte{0});
    interleave_rows(type, N, K, blocks.data(), interleaved.data(), 0, N / interleaved_rows() + 1);
    return {.type = type, .N = N, .K = K, .data = interleaved.data(), .interleaved = true};
  }
};

struct ProductScratch {
  std::vector<std::byte> bytes =
      std::vector<std::byte>(static_cast<size_t>(block_product_scratch_bytes()) + 64);
  void* get() {
    const auto address = reinterpret_cast<uintptr_t>(bytes.data());
    return bytes.data() + (64 - address % 64) % 64;
  }
};

inline constexpr float kUnwritten = -12345.0f;

// Columns [0, N) in ranges that end at `cuts`.
inline std::vector<float> multiply_q8(const Problem& p, const BlockMatrix& w, int64_t first_row, int64_t rows,
                                      const std::vector<int64_t>& cuts = {}) {
  ProductScratch scratch;
  std::vector<std::byte> x(static_cast<size_t>(rows * quantized_row_bytes(p.type, p.K)));
  quantize_rows(p.type, p.x.data() + first_row * p.K, rows, p.K, x.data());
  std::vector<float> y(static_cast<size_t>(rows * p.N), kUnwritten);
  int64_t begin = 0;
  for (const int64_t end : cuts) {
    multiply_blocks_q8(w, x.data(), rows, p.bias.data(), y.data(), begin, end, scratch.get());
    begin = end;
  }
  multiply_blocks_q8(w, x.data(), rows, p.bias.data(), y.data(), begin, p.N, scratch.get());
  return y;
}

inline std::vector<float> multiply_f32(const Problem& p, const BlockMatrix& w, int64_t first_row,
                                       int64_t rows, const std::vector<int64_t>& cuts = {}) {
  ProductScratch scratch;
  std::vector<float> y(static_cast<size_t>(rows * p.N), kUnwritten);
  int64_t begin = 0;
  for (const int64_t end : cuts) {
    multiply_blocks_f32(w, p.x.data() + first_row * p.K, rows, p.bias.data(), y.data(), begin, end,
                        scratch.get());
    begin = end;
  }
  multiply_blocks_f32(w, p.x.data() + first_row * p.K, rows, p.bias.data(), y.data(), begin, p.N,
                      scratch.get());
  return y;
}

// Largest error of y, in units of 2^-24 of the sum of magnitudes.
inline double largest_error(const Problem& p, const std::vector<double>& x, const std::vector<float>& y,
                            const std::vector<double>& sum_errors = {}) {
  double largest = 0;
  for (int64_t m = 0; m < p.M; ++m)
    for (int64_t n = 0; n < p.N; ++n) {
      Sums sums;
      for (int64_t k = 0; k < p.K; ++k)
        sums.add(x[static_cast<size_t>(m * p.K + k)] *
                 static_cast<double>(p.w[static_cast<size_t>(n * p.K + k)]));
      for (int64_t k = 0; k < p.K && !sum_errors.empty() && has_minimum(p.type); k += 32)
        sums.add(minimum_of(p.blocks.data() + dtype_bytes(p.type, n * p.K + k)) *
                 sum_errors[static_cast<size_t>(m * p.K + k) / 32]);
      sums.add(static_cast<double>(p.bias[static_cast<size_t>(n)]));
      const double error = std::fabs(static_cast<double>(y[static_cast<size_t>(m * p.N + n)]) - sums.sum);
      largest = std::max(largest, error / (sums.magnitude * 0x1p-24));
    }
  return largest;
}

inline double largest_error(const Problem& p, const QuantizedRows& x, const std::vector<float>& y) {
  return largest_error(p, x.values, y, x.sum_errors);
}

inline std::vector<float> multiply_transposed(const Problem& p, const BlockMatrix& w,
                                              const std::vector<float>& dy, int64_t first_row, int64_t rows) {
  ProductScratch scratch;
  std::vector<float> dx(static_cast<size_t>(rows * p.K), kUnwritten);
  const float* from = dy.data() + first_row * p.N;
  multiply_blocks_transposed(w, from, rows, dx.data(), 256, p.K, scratch.get());
  multiply_blocks_transposed(w, from, rows, dx.data(), 0, 256, scratch.get());
  return dx;
}

// The same of dx, at every seventh element.
inline double largest_gradient_error(const Problem& p, const std::vector<float>& dy,
                                     const std::vector<float>& dx) {
  double largest = 0;
  for (int64_t m = 0; m < p.M; ++m)
    for (int64_t k = 0; k < p.K; k += 7) {
      Sums sums;
      for (int64_t n = 0; n < p.N; ++n)
        sums.add(static_cast<double>(dy[static_cast<size_t>(m * p.N + n)]) *
                 static_cast<double>(p.w[static_cast<size_t>(n * p.K + k)]));
      const double error = std::fabs(static_cast<double>(dx[static_cast<size_t>(m * p.K + k)]) - sums.sum);
      largest = std::max(largest, error / (sums.magnitude * 0x1p-24));
    }
  return largest;
}

// Rows [first, first + rows) of a matrix.
inline std::vector<float> rows_of(const std::vector<float>& matrix, int64_t columns, int64_t first,
                                  int64_t rows) {
  return {matrix.begin() + first * columns, matrix.begin() + (first + rows) * columns};
}

}  // namespace tessera::cpu
