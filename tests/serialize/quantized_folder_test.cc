// Quantised tensors of Hugging Face folders, against the formulas of their formats.
#include "serialize/import/quantized_folder.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/fp8.h"
#include "graph/base/half.h"
#include "tests/serialize/foreign_values.h"
#include "tests/serialize/quantized_tensors.h"
#include "tests/serialize/safetensors_writer.h"

namespace tessera {
namespace {

using testing::SafetensorsWriter;

constexpr std::string_view kGptq = R"({"quant_method":"gptq","bits":4,"group_size":32})";
constexpr int64_t K = 64, N = 8;

int code_of(int64_t k, int64_t n) { return static_cast<int>((k * 7 + n * 3 + k * n) % 16); }
float scale_of(int64_t g, int64_t n) { return 0.25f + static_cast<float>(g) / 8 + static_cast<float>(n) / 64; }

// Theirs: words of eight rows of a column. Zero points are stored less one.
struct Gptq {
  std::vector<uint32_t> qweight = std::vector<uint32_t>(K / 8 * N), qzeros = std::vector<uint32_t>(2);
  std::vector<float> scales;
  std::vector<int32_t> g_idx;
  std::string groups = "[2,8]";

  explicit Gptq(uint32_t zero) {
    for (int64_t k = 0; k < K; ++k) {
      g_idx.push_back(static_cast<int32_t>(k / 32));
      for (int64_t n = 0; n < N; ++n)
        qweight[static_cast<size_t>(k / 8 * N + n)] |= static_cast<uint32_t>(code_of(k, n)) << (k % 8 * 4);
    }
    for (uint32_t& word : qzeros)
      for (int i = 0; i < 8; ++i) word |= (zero - 1) << (4 * i);
    for (int64_t g = 0; g < 2; ++g)
      for (int64_t n = 0; n < N; ++n) scales.push_back(scale_of(g, n));
  }
  ForeignFile file() const {
    return tensors_of(SafetensorsWriter()
                          .tensor("x.qweight", "I32", "[8,8]", bytes_of(qweight))
                          .tensor("x.qzeros", "I32", "[2,1]", bytes_of(qzeros))
                          .tensor("x.scales", "F16", groups, f16_bytes(scales))
                          .tensor("x.g_idx", "I32", "[64]", bytes_of(g_idx)));
  }
};

}  // namespace

TEST_CASE("gptq_of_middle_zero_points_is_q4_0") {
  ForeignFile file = Gptq(8).file();
  const auto became = decode_quantized_tensors(quantization(kGptq), file);
  REQUIRE_MESSAGE(became.ok(), became.status().to_string());
  CHECK(*became == "weights: 1 as q4_0");
  CHECK(file.tensors.size() == 1);
  CHECK(file.tensors.at("x.weight").shape == Shape{N, K});
  const std::vector<float> values = values_of(file, "x.weight", DType::kQ4_0);
  for (int64_t n = 0; n < N; ++n)
    for (int64_t k = 0; k < K; ++k)
      CHECK(values[static_cast<size_t>(n * K + k)] == static_cast<float>(code_of(k, n) - 8) * scale_of(k / 32, n));
}

TEST_CASE("gptq_of_other_zero_points_or_orders_is_decoded") {
  for (const bool is_reordered : {false, true}) {
    CAPTURE(is_reordered);
    Gptq theirs(is_reordered ? 8 : 5);
    if (is_reordered)
      for (size_t k = 0; k < theirs.g_idx.size(); ++k) theirs.g_idx[k] = static_cast<int32_t>(k % 2);
    ForeignFile file = theirs.file();
    REQUIRE(decode_quantized_tensors(quantization(kGptq), file).ok());
    const std::vector<float> values = values_of(file, "x.weight", DType::kF16);
    for (int64_t n = 0; n < N; ++n)
      for (int64_t k = 0; k < K; ++k) {
        const int64_t g = is_reordered ? k % 2 : k / 32;
        const float exact = static_cast<float>(code_of(k, n) - (is_reordered ? 8 : 5)) * scale_of(g, n);
        CHECK(values[static_cast<size_t>(n * K + k)] == f32_from_f16(f16_from_f32(exact)));
      }
  }
}

TEST_CASE("awq_columns_stand_in_their_order") {
  constexpr int kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};  // columns of a word, lowest bits first
  std::vector<uint32_t> qweight(32), qzeros(1);
  std::vector<float> scales;
  for (int64_t k = 0; k < 32; ++k)
    for (int i = 0; i < 8; ++i) qweight[static_cast<size_t>(k)] |= static_cast<uint32_t>(code_of(k, kOrder[i])) << (4 * i);
  for (int i = 0; i < 8; ++i) qzeros[0] |= static_cast<uint32_t>(kOrder[i] + 1) << (4 * i);
  for (int64_t n = 0; n < N; ++n) scales.push_back(scale_of(0, n));
  ForeignFile file = tensors_of(SafetensorsWriter()
                                    .tensor("x.qweight", "I32", "[32,1]", bytes_of(qweight))
                                    .tensor("x.qzeros", "I32", "[1,1]", bytes_of(qzeros))
                                    .tensor("x.scales", "F16", "[1,8]", f16_bytes(scales)));
  REQUIRE(decode_quantized_tensors(quantization(R"({"quant_method":"awq","bits":4,"version":"GEMM"})"), file).ok());
  const std::vector<float> values = values_of(file, "x.weight", DType::kF16);
  for (int64_t n = 0; n < N; ++n)
    for (int64_t k = 0; k < 32; ++k)
      CHECK(values[static_cast<size_t>(n * 32 + k)] ==
            f32_from_f16(f16_from_f32(static_cast<float>(code_of(k, n) - static_cast<int>(n + 1)) * scale_of(0, n))));
}

TEST_CASE("fp8_codes_are_multiplied_by_the_scale_of_their_block") {
  std::vector<uint8_t> codes;
  for (int i = 0; i < 5 * 7; ++i) codes.push_back(static_cast<uint8_t>(i * 7 % 0x7f));
  const std::vector<float> scales = {0.5f, 2, 3, 0.1f, 7, 11};  // 3 of rows, 2 of columns
  ForeignFile file = tensors_of(
      SafetensorsWriter().tensor("x.weight", "F8_E4M3", "[5,7]", bytes_of(codes)).f32("x.weight_scale_inv", "[3,2]", scales));
  REQUIRE(decode_quantized_tensors(quantization(R"({"quant_method":"fp8","weight_block_size":[2,4]})"), file).ok());
  CHECK(file.tensors.size() == 1);
  const std::vector<float> values = values_of(file, "x.weight", DType::kF32);
  for (size_t row = 0; row < 5; ++row)
    for (size_t column = 0; column < 7; ++column)
      CHECK(values[row * 7 + column] == f32_from_fp8(codes[row * 7 + column], kE4M3Format) * scales[row / 2 * 2 + column / 4]);
}

TEST_CASE("static_fp8_has_one_scale_and_its_activations_scales_are_left_out") {
  const std::vector<uint8_t> codes = {0x38, 0xb9, 0x01, 0x7e, 0x00, 0x44};
  const std::vector<float> scale = {0.3f};
  for (const char* const suffix : {"_scale_inv", "_scale"}) {
    ForeignFile file = tensors_of(SafetensorsWriter()
                                      .tensor("x.weight", "F8_E4M3", "[2,3]", bytes_of(codes))
                                      .f32(std::string("x.weight") + suffix, "[]", scale)
                                      .f32("x.activation_scale", "[]", scale)
                                      .f32("x.k_scale", "[1]", scale));
    const auto became = decode_quantized_tensors(
        quantization(R"({"quant_method":"fp8","activation_scheme":"static","weight_block_size":null})"), file);
    REQUIRE_MESSAGE(became.ok(), became.status().to_string());
    CHECK(*became ==
          "weights: 1 as f32; left out, as activations, keys and values are not rounded: activation_scheme static, 1 of "
          "activation_scale, 1 of k_scale");
    CHECK(file.tensors.size() == 1);
    const std::vector<float> values = values_of(file, "x.weight", DType::kF32);
    for (size_t i = 0; i < codes.size(); ++i) CHECK(values[i] == f32_from_fp8(codes[i], kE4M3Format) * scale[0]);
  }
}

TEST_CASE("mxfp4_rows_of_gate_and_up_are_two_tensors") {
  constexpr float kNumbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  constexpr int64_t E = 2, kRows = 4, kBlocks = 2;
  std::vector<uint8_t> codes, exponents;
  for (int64_t i = 0; i < E * kRows * kBlocks * 16; ++i) codes.push_back(static_cast<uint8_t>(i * 37 + i / 16));
  for (int64_t i = 0; i < E * kRows * kBlocks; ++i) exponents.push_back(static_cast<uint8_t>(125 + i % 5));
  ForeignFile file = tensors_of(SafetensorsWriter()
                                    .tensor("m.experts.gate_up_proj_blocks", "U8", "[2,4,2,16]", bytes_of(codes))
                                    .tensor("m.experts.gate_up_proj_scales", "U8", "[2,4,2]", bytes_of(exponents)));
  REQUIRE(decode_quantized_tensors(quantization(R"({"quant_method":"mxfp4"})"), file).ok());
  const char* const names[] = {"m.experts.gate_proj.weight", "m.experts.up_proj.weight"};
  for (int64_t which = 0; which < 2; ++which) {
    CHECK(file.tensors.at(names[which]).shape == Shape{E, kRows / 2, kBlocks * 32});
    const std::vector<float> values = values_of(file, names[which], DType::kMXFP4);
    for (int64_t e = 0; e < E; ++e)
      for (int64_t row = 0; row < kRows / 2; ++row)
        for (int64_t i = 0; i < kBlocks * 32; ++i) {
          const int64_t block = (e * kRows + 2 * row + which) * kBlocks + i / 32;
          const uint8_t byte = codes[static_cast<size_t>(block * 16 + i % 32 / 2)];
          const float exact =
              std::ldexp(kNumbers[i % 2 == 0 ? byte & 15 : byte >> 4], exponents[static_cast<size_t>(block)] - 127);
          CHECK(values[static_cast<size_t>((e * kRows / 2 + row) * kBlocks * 32 + i)] == exact);
        }
  }
}

TEST_CASE("quantised_tensors_that_do_not_fit_are_refused_with_a_reason") {
  Gptq theirs(8);
  theirs.g_idx[3] = 2;
  check_says(status_of(kGptq, theirs.file()), "g_idx' has 2 at 3, there are 2 groups");
  theirs = Gptq(8);
  theirs.groups = "[1,16]";
  check_says(status_of(kGptq, theirs.file()), "has scales [1, 16]");
  theirs = Gptq(8);
  theirs.scales[4] = HUGE_VALF;
  check_says(status_of(kGptq, theirs.file()), "x.scales' has inf at 4");
  check_says(status_of(kGptq, tensors_of(SafetensorsWriter().tensor("x.qweight", "I32", "[1,1]", "abcd"))),
             "'x.scales' is missing");
  check_says(status_of(R"({"quant_method":"fp8"})", tensors_of(SafetensorsWriter().tensor("x", "F8_E4M3", "[2,2]", "abcd"))),
             "'x_scale_inv' is missing");
  check_says(
      status_of(
          R"({"quant_method":"mxfp4"})",
          tensors_of(SafetensorsWriter().tensor("x_blocks", "U8", "[1,1,1,4]", "abcd").tensor("x_scales", "U8", "[1,1,1]", "a"))),
      "wanted u8 [E, N, K / 32, 16]");
  const std::pair<std::string_view, std::string_view> configs[] = {
      {R"({"quant_method":"hqq"})",
       "quant_method is 'hqq'; known: awq, bitsandbytes, compressed-tensors, fp8, gptq, modelopt, mxfp4"},
      {R"({"quant_method":"bitsandbytes","load_in_4bit":true,"bnb_4bit_quant_type":"af4"})",
       "bnb_4bit_quant_type is 'af4'; known: fp4, nf4"},
      {R"({"quant_method":"gptq"})", "bits is missing"},
      {R"({"quant_method":"gptq","bits":3})", "bits is 3"},
      {R"({"quant_method":"gptq","bits":4,"checkpoint_format":"marlin"})", "checkpoint_format is 'marlin'"},
      {R"({"quant_method":"awq","bits":4,"version":"gemv"})", "version is 'gemv'"},
      {R"({"quant_method":"fp8","activation_scheme":"token"})", "activation_scheme is 'token'; known: dynamic, static"},
      {R"({"quant_method":"fp8","weight_block_size":[0,128]})", "weight_block_size"},
      {"[]", "wanted an object"},
  };
  for (const auto& [text, words] : configs) {
    const auto json = parse_json(text, "quantization_config");
    REQUIRE(json.ok());
    check_says(read_folder_quantization(*json).status(), words);
  }
}

}  // namespace tessera
