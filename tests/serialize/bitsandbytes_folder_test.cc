// Tensors as bitsandbytes saves them, against the formulas of its format, in files that are written here.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/blocks/block_layout.h"
#include "graph/base/half.h"
#include "graph/base/text.h"
#include "serialize/import/bitsandbytes_weights.h"
#include "serialize/import/safetensors.h"
#include "tests/serialize/foreign_values.h"
#include "tests/serialize/safetensors_writer.h"

namespace tessera {
namespace {

using testing::SafetensorsWriter;

template <class T>
std::string raw_bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A matrix "x.weight" of 4-bit codes, with its faults.
struct SavedMatrix {
  int64_t N = 6, K = 192, block = 64, nested_block = 4, stated_nested_block = 4;
  std::string type = "nf4", dtype = "bfloat16", more;
  bool nested = false, in_words = false;  // codes stored as bf16 words
  float offset = 0.75f;
  std::vector<float> map = std::vector<float>(kNf4Values, kNf4Values + 16);

  int64_t blocks() const { return (N * K + block - 1) / block; }
  uint8_t code(int64_t i) const { return static_cast<uint8_t>((i * 7 + i / 5) % 16); }
  uint8_t scale_code(int64_t b) const { return static_cast<uint8_t>(b * 37 + 3); }
  static float nested_value(int64_t code) { return static_cast<float>(code - 128) / 96.0f; }
  static float nested_scale(int64_t group) { return 0.3f + static_cast<float>(group) / 7.0f; }
  float scale(int64_t b) const {
    if (!nested) return 0.1f + static_cast<float>(b) / 3.0f;
    const volatile float product =
        nested_value(scale_code(b)) * nested_scale(b / nested_block);  // rounded by itself
    return product + offset;
  }
  std::string state() const {
    std::string text =
        format(R"("quant_type":"{}","blocksize":{},"dtype":"{}","shape":[{},{}])", type, block, dtype, N, K);
    if (nested)
      text += format(R"(,"nested_blocksize":{},"nested_dtype":"float32","nested_offset":{})", stated_nested_block,
                     offset);
    return "{" + text + more + "}";
  }
  std::string file() const {
    std::vector<uint8_t> codes(static_cast<size_t>((N * K + 1) / 2));
    for (int64_t i = 0; i < N * K; ++i)
      codes[static_cast<size_t>(i / 2)] |= static_cast<uint8_t>(code(i) << (i % 2 == 0 ? 4 : 0));
    SafetensorsWriter writer;
    const auto list = [](int64_t count) { return format("[{}]", count); };
    writer.tensor("x.weight", in_words ? "BF16" : "U8",
                  format("[{},1]", std::ssize(codes) / (in_words ? 2 : 1)), raw_bytes(codes));
    writer.f32("x.weight.quant_map", list(std::ssize(map)), map);
    writer.tensor("x.weight.quant_state.bitsandbytes__" + type, "U8", list(std::ssize(state())), state());
    std::vector<float> scales;
    std::vector<uint8_t> scale_codes;
    for (int64_t b = 0; b < blocks(); ++b) scales.push_back(scale(b)), scale_codes.push_back(scale_code(b));
    if (!nested) return writer.f32("x.weight.absmax", list(blocks()), scales).finish();
    std::vector<float> values, factors;
    for (int64_t i = 0; i < 256; ++i) values.push_back(nested_value(i));
    for (int64_t g = 0; g < (blocks() + nested_block - 1) / nested_block; ++g)
      factors.push_back(nested_scale(g));
    return writer.tensor("x.weight.absmax", "U8", list(blocks()), raw_bytes(scale_codes))
        .f32("x.weight.nested_absmax", list(std::ssize(factors)), factors)
        .f32("x.weight.nested_quant_map", "[256]", values)
        .finish();
  }
};

ForeignFile opened(const std::string& contents) {
  const auto bytes = std::make_shared<std::string>(contents);
  ForeignFile file;
  file.source = bytes_in_memory(std::as_bytes(std::span(bytes->data(), bytes->size())), bytes);
  auto tensors = read_safetensors(*file.source, 0);
  REQUIRE_MESSAGE(tensors.ok(), tensors.status().to_string());
  file.tensors = std::move(*tensors);
  return file;
}

Result<std::string> decode(ForeignFile& file) {
  FolderQuantization quantization;
  quantization.method = FolderQuantization::Method::kBitsandbytes;
  return decode_quantized_tensors(quantization, file);
}

void check_refused(const SavedMatrix& matrix, std::string_view words) {
  ForeignFile file = opened(matrix.file());
  const Status status = decode(file).status();
  CAPTURE(status.to_string());
  CHECK(!status.ok());
  CHECK(status.message().find(words) != std::string_view::npos);
}

TEST_CASE("nf4_of_bitsandbytes_is_nf4_with_the_same_numbers_its_scales_expanded") {
  for (const bool nested : {false, true})
    for (const int64_t block : {64, 128, 256}) {
      CAPTURE(nested);
      CAPTURE(block);
      SavedMatrix matrix;
      matrix.nested = nested, matrix.block = block, matrix.in_words = block == 128;
      ForeignFile file = opened(matrix.file());
      const auto became = decode(file);
      REQUIRE_MESSAGE(became.ok(), became.status().to_string());
      CHECK(*became == "weights: 1 as nf4");
      CHECK(file.tensors.size() == 1);
      CHECK(file.tensors.at("x.weight").shape == Shape{matrix.N, matrix.K});
      const std::vector<float> values = values_of(file, "x.weight", DType::kNF4);
      for (int64_t i = 0; i < matrix.N * matrix.K; ++i)
        CHECK(values[static_cast<size_t>(i)] == kNf4Values[matrix.code(i)] * matrix.scale(i / block));
    }
}

TEST_CASE("matrices_of_many_chunks_are_read_whole") {
  SavedMatrix matrix;
  matrix.N = 1100, matrix.K = 2048, matrix.nested = true, matrix.nested_block = matrix.stated_nested_block = 256;
  ForeignFile file = opened(matrix.file());
  REQUIRE(decode(file).ok());
  const std::vector<float> values = values_of(file, "x.weight", DType::kNF4);
  int64_t wrong = 0;
  for (int64_t i = 0; i < matrix.N * matrix.K; ++i)
    wrong += values[static_cast<size_t>(i)] == kNf4Values[matrix.code(i)] * matrix.scale(i / 64) ? 0 : 1;
  CHECK(wrong == 0);
}

TEST_CASE("fp4_of_bitsandbytes_is_rounded_to_the_type_of_its_state_whatever_its_rows") {
  for (const auto& [word, dtype] : {std::pair("float32", DType::kF32), std::pair("float16", DType::kF16),
                                    std::pair("bfloat16", DType::kBF16)}) {
    CAPTURE(word);
    SavedMatrix matrix;
    matrix.type = "fp4", matrix.dtype = word, matrix.K = 45, matrix.N = 7;
    matrix.map = {0, 0.0625f, 8, 12, 4, 6, 2, 3, -0.0f, -0.0625f, -8, -12, -4, -6, -2, -3};
    for (float& value : matrix.map) value /= 12;
    ForeignFile file = opened(matrix.file());
    const auto became = decode(file);
    REQUIRE_MESSAGE(became.ok(), became.status().to_string());
    const std::vector<float> values = values_of(file, "x.weight", dtype);
    for (int64_t i = 0; i < matrix.N * matrix.K; ++i) {
      const float exact = matrix.map[matrix.code(i)] * matrix.scale(i / matrix.block);
      const float wanted = dtype == DType::kF32   ? exact
                           : dtype == DType::kF16 ? f32_from_f16(f16_from_f32(exact))
                                                  : f32_from_bf16(bf16_from_f32(exact));
      CHECK(values[static_cast<size_t>(i)] == wanted);
    }
  }
}

TEST_CASE("codes_of_8_bits_are_multiplied_by_the_scale_of_their_row") {
  std::vector<int8_t> codes;
  for (int i = 0; i < 15; ++i) codes.push_back(static_cast<int8_t>(i * 17 - 127));
  const std::vector<float> scales = {0.5f, 3.25f, 0.0f};
  const auto saved = [&](const std::string& form) {
    return opened(SafetensorsWriter()
                      .tensor("u.weight", "I8", "[3,5]", raw_bytes(codes))
                      .f32("u.SCB", "[3]", scales)
                      .tensor("u.weight_format", "U8", "[]", form)
                      .finish());
  };
  ForeignFile file = saved(std::string(1, '\0'));
  const auto became = decode(file);
  REQUIRE_MESSAGE(became.ok(), became.status().to_string());
  CHECK(file.tensors.size() == 1);
  const std::vector<float> values = values_of(file, "u.weight", DType::kF32);
  for (size_t i = 0; i < values.size(); ++i) {
    const float scaled = static_cast<float>(codes[i]) * scales[i / 5];
    CHECK(values[i] == scaled * 7.874015718698502e-3f);
  }
  ForeignFile turned = saved(std::string(1, '\2'));
  CHECK(decode(turned).status().message().find("u.weight_format' is 2; wanted 0") != std::string_view::npos);
  ForeignFile few = opened(SafetensorsWriter()
                               .tensor("u.weight", "I8", "[3,5]", raw_bytes(codes))
                               .f32("u.SCB", "[2]", {scales.data(), 2})
                               .finish());
  CHECK(decode(few).status().message().find("'u.SCB' is [2], wanted [3]") != std::string_view::npos);
}

TEST_CASE("what_blocks_of_64_do_not_hold_is_refused_by_name") {
  SavedMatrix matrix;
  matrix.K = 96;
  check_refused(matrix, "tensor 'x.weight' is nf4 [6, 96]: its rows are no whole blocks of 64; leave it out");
  matrix = {};
  matrix.block = 32;
  check_refused(matrix, "'x.weight' is nf4 in blocks of 32; wanted a multiple of 64");
  matrix = {};
  matrix.map[3] = -0.4f;
  check_refused(matrix, "'x.weight.quant_map' has other values than nf4");
  matrix = {};
  matrix.map.push_back(2);
  check_refused(matrix, "'x.weight.quant_map' is f32 [17], wanted f32 [16]");
  matrix = {};
  matrix.type = "int4";
  check_refused(matrix, "'x.weight' is quantised as 'int4'; known: fp4, nf4");
  matrix = {};
  matrix.type = "fp4", matrix.dtype = "float64";
  check_refused(matrix, "dtype is 'float64'; known: bfloat16, float16, float32");
  matrix = {};
  matrix.more = R"(,"shift":3)";
  check_refused(matrix, "the state's 'shift' is not known");
  matrix = {};
  matrix.nested = true, matrix.stated_nested_block = 0;
  check_refused(matrix, "nested_blocksize");
  SavedMatrix lies;
  const std::string file = lies.file(), wanted = "\"shape\":[6,192]", other = "\"shape\":[7,192]";
  std::string changed = file;
  changed.replace(changed.find(wanted), wanted.size(), other);
  ForeignFile wrong = opened(changed);
  CHECK(decode(wrong).status().message().find("'x.weight' has 576 bytes, wanted 672 of nf4 [7, 192]") !=
        std::string_view::npos);
}

}  // namespace
}  // namespace tessera
