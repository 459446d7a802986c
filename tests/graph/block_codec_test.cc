#include "graph/base/blocks/block_codec.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "graph/base/blocks/block_layout.h"
#include "graph/base/status.h"

using namespace tessera;

namespace {

// Bytes that tests/reference/gguf_blocks.py makes too.
std::vector<std::byte> pseudo_random_bytes(size_t count) {
  std::vector<std::byte> bytes(count);
  uint64_t state = 25;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

// FNV-1a over the bits of the values; all NaNs are one.
uint64_t hash_values(const std::vector<float>& values) {
  uint64_t hash = 14695981039346656037u;
  for (float value : values) {
    hash ^= value == value ? std::bit_cast<uint32_t>(value) : 0x7fc00000u;
    hash *= 1099511628211u;
  }
  return hash;
}

struct Golden {
  DType type;
  uint64_t hash;
};
constexpr int64_t kGoldenElements = 65536;
// Made by `tests/reference/gguf_blocks.py BUILD --golden`, with the gguf package (q1_0 and q2_0: GGML's
// library), and nf4 by nf4_blocks.py, with bitsandbytes.
constexpr Golden kGolden[] = {
    {DType::kF32, 0xdb81e81ebef33549},     {DType::kF64, 0x83788ac820e774ed},
    {DType::kF16, 0xc1a33349f6a74325},     {DType::kBF16, 0x3534d2ce35542325},
    {DType::kQ4_0, 0x1f06b63a7c75d725},    {DType::kQ4_1, 0x9d3720bf3fb4d9aa},
    {DType::kQ5_0, 0x8f7319499d992125},    {DType::kQ5_1, 0xf55fdc05c95e4afc},
    {DType::kQ8_0, 0x29afd6374d1d7325},    {DType::kQ2_K, 0xff1fbfaf9f91fef1},
    {DType::kQ3_K, 0xc7006796f2183465},    {DType::kQ4_K, 0x96fa23b9f11c376e},
    {DType::kQ5_K, 0xea9584a71439b037},    {DType::kQ6_K, 0x2065415be87e1f89},
    {DType::kIQ1_S, 0x34dbefc9bb49de65},   {DType::kIQ1_M, 0xb5f76967981995a5},
    {DType::kIQ2_XXS, 0x75843661ff731ee5}, {DType::kIQ2_XS, 0x610101576ed1a569},
    {DType::kIQ2_S, 0xbc5d61646fb4ce11},   {DType::kIQ3_XXS, 0x78a6a99d36f90265},
    {DType::kIQ3_S, 0x783f97a351073515},   {DType::kIQ4_NL, 0x0e34f5238c0a0f25},
    {DType::kIQ4_XS, 0xdd8ad6936070132f},  {DType::kTQ1_0, 0x3b73a4eea8e48325},
    {DType::kTQ2_0, 0x4d73be602b7a4325},   {DType::kMXFP4, 0xb902d757d3d62325},
    {DType::kNVFP4, 0x7f7a4e68d53e2325},   {DType::kQ1_0, 0x8da1d4ebf929a325},
    {DType::kQ2_0, 0x3a6200d59429e325},    {DType::kNF4, 0x7f6f0b67a9d5b53b},
};

}  // namespace

TEST_CASE("pseudo_random_blocks_of_every_type_decode_to_the_bits_of_the_reference") {
  int types = 0;
  for (const Golden& golden : kGolden) {
    CAPTURE(to_text(golden.type));
    const auto bytes = pseudo_random_bytes(static_cast<size_t>(dtype_bytes(golden.type, kGoldenElements)));
    std::vector<float> values(kGoldenElements);
    decode_blocks(golden.type, bytes.data(), values.data(), kGoldenElements);
    CHECK(hash_values(values) == golden.hash);
    ++types;
  }
  for (int i = 0; i < kDTypeCount; ++i) types -= can_decode(static_cast<DType>(i)) ? 1 : 0;
  CHECK(types == 0);
}

TEST_CASE("decoding_reads_any_address_and_writes_the_count_alone") {
  for (const Golden& golden : kGolden) {
    CAPTURE(to_text(golden.type));
    const int64_t count = 2 * info(golden.type).block_elements;
    const auto size = static_cast<size_t>(dtype_bytes(golden.type, count));
    const auto bytes = pseudo_random_bytes(size);
    std::vector<std::byte> shifted(size + 1);
    std::copy(bytes.begin(), bytes.end(), shifted.begin() + 1);
    std::vector<float> values(static_cast<size_t>(count)), again(static_cast<size_t>(count) + 1, 7.0f);
    decode_blocks(golden.type, bytes.data(), values.data(), count);
    decode_blocks(golden.type, shifted.data() + 1, again.data(), count);
    CHECK(again.back() == 7.0f);
    again.pop_back();
    CHECK(hash_values(values) == hash_values(again));
    decode_blocks(golden.type, nullptr, nullptr, 0);
  }
}

TEST_CASE("types_without_values_of_their_own_and_parts_of_blocks_are_bugs") {
  float value;
  const std::byte bytes[8] = {};
  for (DType type : {DType::kI32, DType::kI64, DType::kI8, DType::kU8, DType::kE4M3, DType::kE5M2}) {
    CHECK(!can_decode(type));
    CHECK_THROWS_AS(decode_blocks(type, bytes, &value, 1), InternalError);
  }
  CHECK_THROWS_AS(decode_blocks(DType::kQ4_0, bytes, &value, 1), InternalError);
  CHECK_THROWS_AS(decode_blocks(DType::kF32, bytes, &value, -1), InternalError);
}
