#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/blocks/block_layout.h"
#include "graph/base/status.h"

using namespace tessera;

namespace {

constexpr int64_t kRow = 256, kRows = 16;

// Near to a normal distribution: sums of four uniform numbers.
std::vector<float> bell_values(size_t count, uint64_t state = 1) {
  std::vector<float> values(count);
  for (float& value : values) {
    for (int i = 0; i < 4; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      value += static_cast<float>(static_cast<int32_t>(state >> 32)) * 0x1p-31f;
    }
  }
  return values;
}

std::vector<std::byte> encoded(DType type, const std::vector<float>& values,
                               std::span<const float> importance = {}) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<std::byte> blocks(static_cast<size_t>(dtype_bytes(type, count)));
  const Status status = encode_blocks(type, values.data(), count, blocks.data(), importance);
  REQUIRE_MESSAGE(status.ok(), status.to_string());
  return blocks;
}

std::vector<float> decoded(DType type, const std::vector<std::byte>& blocks) {
  std::vector<float> values(blocks.size() / static_cast<size_t>(info(type).block_bytes) *
                            static_cast<size_t>(info(type).block_elements));
  decode_blocks(type, blocks.data(), values.data(), static_cast<int64_t>(values.size()));
  return values;
}

std::vector<float> through(DType type, const std::vector<float>& values,
                           std::span<const float> importance = {}) {
  return decoded(type, encoded(type, values, importance));
}

// Root of the weighted squared error, relative to the values'.
double relative_error(const std::vector<float>& values, const std::vector<float>& others,
                      std::span<const float> importance = {}) {
  double error = 0, size = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double weight = importance.empty() ? 1 : importance[i % importance.size()];
    error += weight * (values[i] - others[i]) * (values[i] - others[i]);
    size += weight * values[i] * values[i];
  }
  return std::sqrt(error / size);
}

uint64_t hash_bytes(const std::vector<std::byte>& bytes) {
  uint64_t hash = 14695981039346656037u;
  for (std::byte byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 1099511628211u;
  return hash;
}

// Error bound of encoded bell_values, a hundredth above the measured error, and hash of the blocks.
struct Expected {
  DType type;
  double error;
  uint64_t hash;
};
constexpr Expected kExpected[] = {
    {DType::kF32, 0, 0x9784e0be47d28387},         {DType::kF64, 0, 0x59ccde9d11cb7707},
    {DType::kF16, 0.000211, 0x0a655aa95169a7c0},  {DType::kBF16, 0.00165, 0x2d24f9c77b58a7dd},
    {DType::kQ8_0, 0.00521, 0x51e0436a7dd7feab},  {DType::kQ4_0, 0.0781, 0xb6db22e71a6b6918},
    {DType::kQ4_1, 0.0677, 0xc81f6bca0e74c4aa},   {DType::kQ5_0, 0.0385, 0xf95a8f4dcf350906},
    {DType::kQ5_1, 0.033, 0x30bedd84de912838},    {DType::kQ2_K, 0.267, 0x746285ba68e43d9c},
    {DType::kQ3_K, 0.142, 0xb22bdc81f340fad0},    {DType::kQ4_K, 0.0682, 0x32ed567a976f716f},
    {DType::kQ5_K, 0.034, 0x4a03b55cf9220828},    {DType::kQ6_K, 0.0166, 0x355b618d71be8898},
    {DType::kIQ4_NL, 0.0728, 0x0af911d69d021d8e}, {DType::kIQ4_XS, 0.0731, 0x6f6547085290d38d},
    {DType::kTQ1_0, 0.425, 0x2e0933564a082f24},   {DType::kTQ2_0, 0.425, 0x3a7e731264c3414d},
    {DType::kMXFP4, 0.11, 0xdb4ee5ef10250bef},    {DType::kNVFP4, 0.0816, 0xfa5c0a5cf47bf530},
    {DType::kQ1_0, 0.596, 0xab0db19d943be9ef},    {DType::kQ2_0, 0.348, 0x512524d3cdefd719},
    {DType::kNF4, 0.0933, 0x551d8f8ecbf5d244},
};

Status encode_one(DType type, std::vector<float> values, std::span<const float> importance = {}) {
  std::vector<std::byte> blocks(static_cast<size_t>(dtype_bytes(type, static_cast<int64_t>(values.size()))));
  return encode_blocks(type, values.data(), static_cast<int64_t>(values.size()), blocks.data(), importance);
}

bool mentions(const Status& status, std::string_view words) {
  return status.code() == StatusCode::kInvalidArgument &&
         status.message().find(words) != std::string_view::npos;
}

}  // namespace

TEST_CASE("every_encoder_keeps_the_error_and_the_bits_that_it_had") {
  const auto values = bell_values(kRow * kRows);
  int types = 0;
  for (const Expected& expected : kExpected) {
    CAPTURE(to_text(expected.type));
    const auto blocks = encoded(expected.type, values);
    CHECK(relative_error(values, decoded(expected.type, blocks)) <= expected.error);
    CHECK(hash_bytes(blocks) == expected.hash);
    ++types;
  }
  for (int i = 0; i < kDTypeCount; ++i) types -= can_encode(static_cast<DType>(i)) ? 1 : 0;
  CHECK(types == 0);
}

TEST_CASE("nf4_takes_the_nearest_level_and_of_two_the_lower_the_first_in_the_high_bits") {
  std::vector<float> values(64, 0.0f);
  values[0] = -2.0f;  // the scale
  for (size_t code = 0; code < 16; ++code) values[1 + code] = 2.0f * kNf4Values[code];
  for (size_t code = 0; code < 15; ++code) {  // half-way, as f32, and the number above
    const double middle =
        (static_cast<double>(kNf4Values[code]) + static_cast<double>(kNf4Values[code + 1])) / 2;
    values[17 + 2 * code] = 2.0f * static_cast<float>(middle);
    values[18 + 2 * code] = 2.0f * std::nextafter(static_cast<float>(middle), 2.0f);
  }
  const std::vector<std::byte> block = encoded(DType::kNF4, values);
  REQUIRE(block.size() == 36);
  float scale = 0;
  std::memcpy(&scale, block.data(), sizeof scale);
  CHECK(scale == 2.0f);
  const auto code_of = [&](size_t i) {
    const auto pair = static_cast<unsigned>(block[4 + i / 2]);
    return i % 2 == 0 ? pair >> 4 : pair & 15;
  };
  CHECK(code_of(0) == 0);
  for (size_t code = 0; code < 16; ++code) CHECK(code_of(1 + code) == code);
  for (size_t code = 0; code < 15; ++code) {
    CHECK(code_of(17 + 2 * code) == code);
    CHECK(code_of(18 + 2 * code) == code + 1);
  }
  CHECK(code_of(63) == 7);
  const std::vector<float> back = decoded(DType::kNF4, block);
  for (size_t code = 0; code < 16; ++code) CHECK(back[1 + code] == values[1 + code]);
}

TEST_CASE("importance_lowers_the_error_of_what_is_important") {
  const auto values = bell_values(kRow * kRows);
  std::vector<float> importance(kRow);
  for (size_t i = 0; i < importance.size(); ++i)
    importance[i] = i % 5 == 0 ? 40.0f : i % 7 == 0 ? 0.0f : 0.5f;
  for (const Expected& expected : kExpected) {
    CAPTURE(to_text(expected.type));
    const double with = relative_error(values, through(expected.type, values, importance), importance);
    const double without = relative_error(values, through(expected.type, values), importance);
    const bool searches = info(expected.type).block_elements > 1 && expected.type != DType::kQ8_0 &&
                          expected.type != DType::kNF4;
    CHECK(with <= (searches ? 0.999 * without : without));
    // Rows one by one, and importance alike for all, are the same blocks.
    const std::vector<float> row(values.end() - kRow, values.end());
    const auto all = encoded(expected.type, values, importance),
               last = encoded(expected.type, row, importance);
    CHECK(std::equal(last.begin(), last.end(), all.end() - static_cast<ptrdiff_t>(last.size())));
    const std::vector<float> constant(kRow, 3.0f), none(kRow, 0.0f);
    CHECK(encoded(expected.type, row, constant) == encoded(expected.type, row));
    CHECK(encoded(expected.type, row, none) == encoded(expected.type, row));
  }
}

TEST_CASE("rows_of_one_value_of_zeros_and_of_extremes_come_back") {
  for (const Expected& expected : kExpected) {
    const DType type = expected.type;
    CAPTURE(to_text(type));
    for (float value : through(type, std::vector<float>(kRow, 0.0f))) CHECK(value == 0.0f);
    // Levels of four bits that have no scale of their own are coarse.
    const float tolerance = type == DType::kMXFP4 ? 0.21f : type == DType::kNVFP4 ? 0.07f : 0.004f;
    for (float constant : {0.37f, -2.5f, 1000.0f}) {
      CAPTURE(constant);
      for (float value : through(type, std::vector<float>(kRow, constant)))
        CHECK(std::fabs(value - constant) <= tolerance * std::fabs(constant));
    }
    // At both ends of what the type holds.
    std::vector<float> extremes(kRow);
    const float largest = largest_encodable(type);
    for (size_t i = 0; i < extremes.size(); ++i) extremes[i] = i % 3 == 0 ? largest : -largest;
    const auto back = through(type, extremes);
    for (size_t i = 0; i < extremes.size(); ++i) {
      CHECK(std::isfinite(back[i]));
      CHECK(std::fabs(back[i] / largest - extremes[i] / largest) <= 0.34f);
    }
    // Below what scales in f16 can tell from zero, nothing worse than zero comes back.
    for (float tiny : {3e-6f, 1e-7f, 1e-30f, 1e-44f}) {
      std::vector<float> row(kRow);
      for (size_t i = 0; i < row.size(); ++i) row[i] = i % 2 == 0 ? tiny : -0.5f * tiny;
      const auto again = through(type, row);
      for (size_t i = 0; i < row.size(); ++i) CHECK(std::fabs(again[i] - row[i]) <= tiny + 0x1p-24f);
    }
  }
}

TEST_CASE("ternary_weights_are_kept_exactly") {
  std::vector<float> values(kRow);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = 0.0625f * static_cast<float>(static_cast<int>(i * 7 % 3) - 1);
  for (DType type : {DType::kTQ1_0, DType::kTQ2_0, DType::kQ2_0}) {
    CAPTURE(to_text(type));
    CHECK(through(type, values) == values);
  }
}

TEST_CASE("values_that_a_type_cannot_hold_are_refused_where_they_are") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(),
                  kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const Expected& expected : kExpected) {
    const DType type = expected.type;
    CAPTURE(to_text(type));
    for (float bad : {kInfinity, -kInfinity, kNaN}) {
      std::vector<float> values(kRow, 1.0f);
      values[200] = bad;
      CHECK(mentions(encode_one(type, values), "value 200 is "));
      CHECK(mentions(encode_one(type, values), "finite"));
    }
    if (largest_encodable(type) < std::numeric_limits<float>::max()) {
      std::vector<float> values(kRow, 1.0f);
      values[3] = -std::nextafter(largest_encodable(type), kInfinity);
      CHECK(mentions(encode_one(type, values), "value 3 is -"));
      CHECK(mentions(encode_one(type, values), info(type).name));
    }
  }
  const std::vector<float> values(kRow, 1.0f);
  for (float bad : {-1.0f, kInfinity, kNaN}) {
    std::vector<float> importance(kRow, 1.0f);
    importance[17] = bad;
    CHECK(mentions(encode_one(DType::kQ4_K, values, importance), "importance 17 is "));
  }
}

TEST_CASE("types_without_an_encoder_are_refused_by_name") {
  for (DType type : {DType::kIQ1_S, DType::kIQ1_M, DType::kIQ2_XXS, DType::kIQ2_XS, DType::kIQ2_S,
                     DType::kIQ3_XXS, DType::kIQ3_S, DType::kI32, DType::kE4M3}) {
    CAPTURE(to_text(type));
    CHECK(!can_encode(type));
    const Status status = encode_one(type, std::vector<float>(kRow, 1.0f));
    CHECK(status.code() == StatusCode::kUnsupported);
    CHECK(status.message().find(info(type).name) == 0);
  }
  CHECK_THROWS_AS((void)encode_one(DType::kQ4_0, std::vector<float>(64), std::vector<float>(48)),
                  InternalError);
}
