// Weights of compressed-tensors and modelopt, against the formulas of their formats.
#include "serialize/import/module_weights.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "graph/base/fp8.h"
#include "graph/base/half.h"
#include "tests/serialize/foreign_values.h"
#include "tests/serialize/quantized_tensors.h"
#include "tests/serialize/safetensors_writer.h"

namespace tessera {
namespace {

using testing::SafetensorsWriter;

constexpr float kE2m1Numbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

// One group of compressed-tensors with targets [TARGETS].
std::string config(std::string_view format_name, std::string_view weights, std::string_view targets = R"("Linear")",
                   std::string_view more = "") {
  return format(
      R"({"quant_method":"compressed-tensors","format":"{}",{}"config_groups":{"group_0":{"targets":[{}],"weights":{{}}}}})",
      format_name, more, targets, weights);
}

int code_at(int64_t n, int64_t k, int64_t bits) { return static_cast<int>((n * 5 + k * 3 + n * k) % (int64_t{1} << bits)); }
int zero_at(int64_t n, int64_t g, int64_t bits) { return static_cast<int>((n + 2 * g + 1) % (int64_t{1} << bits)); }
float scale_at(int64_t n, int64_t g) { return 0.125f + static_cast<float>(n) / 64 + static_cast<float>(g) / 4; }

// Rows of numbers as words, the first in the lowest bits.
std::vector<uint32_t> packed_row(const std::vector<int>& numbers, int64_t bits) {
  std::vector<uint32_t> words((numbers.size() * static_cast<size_t>(bits) + 31) / 32);
  for (size_t i = 0; i < numbers.size(); ++i)
    for (size_t bit = 0; bit < static_cast<size_t>(bits); ++bit) {
      const size_t at = i * static_cast<size_t>(bits) + bit;
      words[at / 32] |= (static_cast<uint32_t>(numbers[i]) >> bit & 1) << (at % 32);
    }
  return words;
}

// A packed matrix [N, K] of module `stem`, with groups of `group` columns.
void add_packed(SafetensorsWriter& writer, const std::string& stem, int64_t N, int64_t K, int64_t bits, int64_t group,
                bool has_zeros) {
  std::vector<uint32_t> words;
  std::vector<float> scales;
  const int64_t G = (K + group - 1) / group;
  for (int64_t n = 0; n < N; ++n) {
    std::vector<int> row;
    for (int64_t k = 0; k < K; ++k) row.push_back(code_at(n, k, bits));
    const std::vector<uint32_t> packed = packed_row(row, bits);
    words.insert(words.end(), packed.begin(), packed.end());
    for (int64_t g = 0; g < G; ++g) scales.push_back(scale_at(n, g));
  }
  writer.tensor(stem + ".weight_packed", "I32", format("[{},{}]", N, std::ssize(words) / N), bytes_of(words))
      .tensor(stem + ".weight_scale", "F16", format("[{},{}]", N, G), f16_bytes(scales))
      .tensor(stem + ".weight_shape", "I64", "[2]", bytes_of(std::vector<int64_t>{N, K}));
  if (!has_zeros) return;
  std::vector<uint32_t> zeros(static_cast<size_t>((N * bits + 31) / 32 * G));
  for (int64_t g = 0; g < G; ++g) {
    std::vector<int> column;
    for (int64_t n = 0; n < N; ++n) column.push_back(zero_at(n, g, bits));
    const std::vector<uint32_t> packed = packed_row(column, bits);
    for (size_t word = 0; word < packed.size(); ++word)
      zeros[word * static_cast<size_t>(G) + static_cast<size_t>(g)] = packed[word];
  }
  writer.tensor(stem + ".weight_zero_point", "I32", format("[{},{}]", std::ssize(zeros) / G, G), bytes_of(zeros));
}

ForeignFile packed_file(int64_t N, int64_t K, int64_t bits, int64_t group, bool has_zeros) {
  SafetensorsWriter writer;
  add_packed(writer, "m.x", N, K, bits, group, has_zeros);
  return tensors_of(writer);
}

std::string described(std::string_view quantization_json, ForeignFile& file) {
  const auto became = decode_quantized_tensors(quantization(quantization_json), file);
  REQUIRE_MESSAGE(became.ok(), became.status().to_string());
  return *became;
}

}  // namespace

TEST_CASE("packed_integers_become_the_smallest_blocks_that_hold_them") {
  struct Case {
    int64_t bits, K, group;
    bool has_zeros;
    DType type;
  };
  const Case cases[] = {
      {4, 64, 32, false, DType::kQ4_0}, {4, 64, 32, true, DType::kQ5_0},  {2, 64, 64, false, DType::kQ4_0},
      {3, 96, 32, true, DType::kQ4_0},  {8, 64, 64, false, DType::kQ8_0}, {8, 64, 32, true, DType::kF16},
      {5, 64, 32, false, DType::kQ5_0}, {4, 37, 37, false, DType::kF16},  {3, 35, 35, true, DType::kF16},
      {4, 48, 16, false, DType::kF16},  {6, 32, 32, true, DType::kQ8_0},  {1, 33, 11, false, DType::kF16},
  };
  constexpr int64_t N = 11;
  for (const Case& c : cases) {
    CAPTURE(c.bits);
    CAPTURE(c.K);
    CAPTURE(c.has_zeros);
    ForeignFile file = packed_file(N, c.K, c.bits, c.group, c.has_zeros);
    const std::string weights =
        format(R"("num_bits":{},"type":"int","strategy":"{}","symmetric":{},"group_size":{})", c.bits,
               c.group == c.K ? "channel" : "group", !c.has_zeros, c.group == c.K ? "null" : to_text(c.group));
    CHECK(described(config("pack-quantized", weights), file) == format("weights: 1 as {}", to_text(c.type)));
    CHECK(file.tensors.size() == 1);
    CHECK(file.tensors.at("m.x.weight").shape == Shape{N, c.K});
    const std::vector<float> values = values_of(file, "m.x.weight", c.type);
    for (int64_t n = 0; n < N; ++n)
      for (int64_t k = 0; k < c.K; ++k) {
        const int64_t g = k / c.group;
        const int zero = c.has_zeros ? zero_at(n, g, c.bits) : 1 << (c.bits - 1);
        const float exact = static_cast<float>(code_at(n, k, c.bits) - zero) * scale_at(n, g);
        CHECK(values[static_cast<size_t>(n * c.K + k)] == (c.type == DType::kF16 ? f32_from_f16(f16_from_f32(exact)) : exact));
      }
  }
}

TEST_CASE("columns_have_the_groups_of_g_idx") {
  constexpr int64_t N = 3, K = 64;
  for (const bool is_unset : {false, true}) {
    std::vector<int32_t> groups;
    for (int64_t k = 0; k < K; ++k) groups.push_back(is_unset ? -1 : static_cast<int32_t>(k % 2));
    SafetensorsWriter writer;
    add_packed(writer, "m.x", N, K, 4, 32, false);
    writer.tensor("m.x.weight_g_idx", "I32", "[64]", bytes_of(groups));
    ForeignFile file = tensors_of(writer);
    const std::string json =
        config("pack-quantized", R"("num_bits":4,"type":"int","strategy":"group","group_size":32,"actorder":"group")");
    CHECK(described(json, file) == (is_unset ? "weights: 1 as q4_0" : "weights: 1 as f16"));
    const std::vector<float> values = values_of(file, "m.x.weight", is_unset ? DType::kQ4_0 : DType::kF16);
    for (int64_t n = 0; n < N; ++n)
      for (int64_t k = 0; k < K; ++k)
        CHECK(values[static_cast<size_t>(n * K + k)] ==
              static_cast<float>(code_at(n, k, 4) - 8) * scale_at(n, is_unset ? k / 32 : k % 2));
  }
}

TEST_CASE("floats_and_integers_of_8_bits_have_scales_of_rows_tensors_and_blocks") {
  constexpr int64_t N = 5, K = 7;
  std::vector<uint8_t> codes;
  for (int64_t i = 0; i < N * K; ++i) codes.push_back(static_cast<uint8_t>(i * 11 % 0x7f + (i % 3 == 0 ? 0x80 : 0)));
  struct Case {
    std::string_view strategy, shape;
    int64_t rows, columns;
  };
  for (const Case& c : {Case{R"("strategy":"channel")", "[5,1]", 1, K}, Case{R"("strategy":"tensor")", "[1]", N, K},
                        Case{R"("strategy":"block","block_structure":[2,4])", "[3,2]", 2, 4},
                        Case{R"("strategy":"block","block_structure":"2x4")", "[3,2]", 2, 4}})
    for (const bool is_float : {true, false}) {
      CAPTURE(c.strategy);
      CAPTURE(is_float);
      const int64_t grid = (N + c.rows - 1) / c.rows * ((K + c.columns - 1) / c.columns);
      std::vector<float> scales;
      for (int64_t i = 0; i < grid; ++i) scales.push_back(0.1f + 0.01f * static_cast<float>(i));
      ForeignFile file = tensors_of(SafetensorsWriter()
                                        .tensor("x.weight", is_float ? "F8_E4M3" : "I8", "[5,7]", bytes_of(codes))
                                        .f32("x.weight_scale", c.shape, scales)
                                        .f32("x.input_scale", "[1]", std::span(scales).first(1)));
      const std::string weights = format(R"("num_bits":8,"type":"{}",{})", is_float ? "float" : "int", c.strategy);
      for (const char* const form : {is_float ? "float-quantized" : "int-quantized", "naive-quantized"}) {
        ForeignFile copy = file;
        CHECK(described(config(form, weights), copy) ==
              "weights: 1 as f32; left out, as activations, keys and values are not rounded: 1 of input_scale");
        const std::vector<float> values = values_of(copy, "x.weight", DType::kF32);
        for (int64_t n = 0; n < N; ++n)
          for (int64_t k = 0; k < K; ++k) {
            const uint8_t code = codes[static_cast<size_t>(n * K + k)];
            const float number = is_float ? f32_from_fp8(code, kE4M3Format) : static_cast<float>(static_cast<int8_t>(code));
            const int64_t at = n / c.rows * ((K + c.columns - 1) / c.columns) + k / c.columns;
            CHECK(values[static_cast<size_t>(n * K + k)] == number * scales[static_cast<size_t>(at)]);
          }
      }
    }
}

namespace {

struct Fp4 {
  static constexpr int64_t N = 3;
  int64_t K, group;
  std::vector<uint8_t> codes, scales;
  Fp4(int64_t columns, int64_t grouped, int first_scale) : K(columns), group(grouped) {
    for (int64_t i = 0; i < N * K / 2; ++i) codes.push_back(static_cast<uint8_t>(i * 37 + i / 5));
    for (int64_t i = 0; i < N * ((K + group - 1) / group); ++i) scales.push_back(static_cast<uint8_t>(first_scale + i % 7));
  }
  float number(int64_t n, int64_t k) const {
    const uint8_t byte = codes[static_cast<size_t>((n * K + k) / 2)];
    return kE2m1Numbers[k % 2 == 0 ? byte & 15 : byte >> 4];
  }
  uint8_t scale(int64_t n, int64_t k) const { return scales[static_cast<size_t>(n * ((K + group - 1) / group) + k / group)]; }
  SafetensorsWriter writer(std::string_view codes_name, std::string_view scale_type) const {
    SafetensorsWriter made;
    made.tensor(codes_name, "U8", format("[{},{}]", N, K / 2), bytes_of(codes))
        .tensor("x.weight_scale", scale_type, format("[{},{}]", N, std::ssize(scales) / N), bytes_of(scales));
    return made;
  }
};

}  // namespace

TEST_CASE("nvfp4_stays_with_a_factor_and_has_bf16_beside_it") {
  constexpr std::string_view kCompressed = R"("num_bits":4,"type":"float","strategy":"tensor_group","group_size":16)";
  for (const bool is_modelopt : {false, true}) {
    CAPTURE(is_modelopt);
    const Fp4 theirs(64, 16, 0x30);
    const float factor = is_modelopt ? 0.3f : 3.7f, product = is_modelopt ? factor : 1 / factor;
    SafetensorsWriter writer = theirs.writer(is_modelopt ? "x.weight" : "x.weight_packed", "F8_E4M3");
    writer.f32(is_modelopt ? "x.weight_scale_2" : "x.weight_global_scale", is_modelopt ? "[]" : "[1]", std::vector<float>{factor})
        .f32(is_modelopt ? "x.input_scale" : "x.input_global_scale", "[1]", std::vector<float>{factor});
    ForeignFile file = tensors_of(writer);
    const std::string json =
        is_modelopt ? R"({"quant_method":"modelopt","quant_algo":"NVFP4","ignore":["lm_head"],"kv_cache_scheme":{"num_bits":8}})"
                    : config("nvfp4-pack-quantized", kCompressed);
    CHECK(described(json, file).starts_with("weights: 1 as nvfp4 (bf16 where products are not scaled); left out"));
    CHECK(file.tensors.size() == 1);
    const ForeignTensor& tensor = file.tensors.at("x.weight");
    CHECK(tensor.product_scale == product);
    const std::vector<float> values = values_of(file, "x.weight", DType::kNVFP4);
    REQUIRE(tensor.scaled);
    file.tensors["y"] = *tensor.scaled;
    const std::vector<float> scaled = values_of(file, "y", DType::kBF16);
    for (int64_t n = 0; n < Fp4::N; ++n)
      for (int64_t k = 0; k < theirs.K; ++k) {
        const auto at = static_cast<size_t>(n * theirs.K + k);
        const float scale = f32_from_fp8(theirs.scale(n, k), kE4M3Format), all = is_modelopt ? scale * factor : scale / factor;
        CHECK(values[at] == theirs.number(n, k) * scale);
        CHECK(scaled[at] == f32_from_bf16(bf16_from_f32(theirs.number(n, k) * all)));
      }
  }
}

TEST_CASE("mxfp4_and_mxfp8_have_scales_that_are_exponents") {
  for (const int64_t K : {64, 44}) {
    const Fp4 theirs(K, 32, 120);
    const DType type = K == 64 ? DType::kMXFP4 : DType::kBF16;
    for (const bool is_modelopt : {false, true}) {
      ForeignFile file = tensors_of(theirs.writer(is_modelopt ? "x.weight" : "x.weight_packed", "U8"));
      described(is_modelopt ? R"({"quant_method":"modelopt","quant_algo":"W4A8_MXFP4_FP8"})"
                            : config("mxfp4-pack-quantized", R"("num_bits":4,"type":"float","strategy":"group","group_size":32)"),
                file);
      const std::vector<float> values = values_of(file, "x.weight", type);
      for (int64_t n = 0; n < Fp4::N; ++n)
        for (int64_t k = 0; k < K; ++k)
          CHECK(values[static_cast<size_t>(n * K + k)] == std::ldexp(theirs.number(n, k), theirs.scale(n, k) - 127));
    }
  }
  const std::vector<uint8_t> codes = {0x38, 0xb9, 0x01, 0x7e}, scales = {126, 9};
  ForeignFile file = tensors_of(SafetensorsWriter()
                                    .tensor("x.weight", "F8_E4M3", "[2,2]", bytes_of(codes))
                                    .tensor("x.weight_scale", "U8", "[2,1]", bytes_of(scales)));
  described(config("mxfp8-quantized", R"("num_bits":8,"type":"float","strategy":"group","group_size":32)"), file);
  const std::vector<float> values = values_of(file, "x.weight", DType::kBF16);
  for (size_t i = 0; i < 4; ++i) CHECK(values[i] == std::ldexp(f32_from_fp8(codes[i], kE4M3Format), scales[i / 2] - 127));
}

namespace {

// Modules of two groups: attention in 8 bits, the others in 4; the head stays.
constexpr std::string_view kTwoGroups =
    R"({"quant_method":"compressed-tensors","format":"mixed-precision","ignore":["lm_head","re:.*mlp[.]gate$"],"kv_cache_scheme":{"num_bits":8},)"
    R"("config_groups":{"group_0":{"targets":["Linear"],"format":"pack-quantized","input_activations":{"num_bits":8},)"
    R"("weights":{"num_bits":4,"type":"int","strategy":"group","group_size":32}},)"
    R"("group_1":{"targets":["re:.*self_attn[.](q|k)_proj"],"format":"int-quantized","weights":{"num_bits":8,"type":"int","strategy":"channel"}}}})";

SafetensorsWriter two_groups() {
  SafetensorsWriter writer;
  add_packed(writer, "model.language_model.layers.0.mlp.up_proj", 3, 64, 4, 32, false);
  writer.tensor("model.language_model.layers.0.self_attn.q_proj.weight", "I8", "[2,32]", std::string(64, 'a'))
      .f32("model.language_model.layers.0.self_attn.q_proj.weight_scale", "[2,1]", std::vector<float>{0.5f, 0.25f})
      .tensor("model.language_model.layers.0.mlp.gate.weight", "BF16", "[1,2]", "abcd")
      .tensor("model.language_model.embed_tokens.weight", "BF16", "[1,2]", "abcd")
      .tensor("lm_head.weight", "BF16", "[1,2]", "abcd");
  return writer;
}

}  // namespace

TEST_CASE("groups_claim_modules_by_name_pattern_and_class") {
  ForeignFile file = tensors_of(two_groups());
  CHECK(described(kTwoGroups, file) ==
        "weights: 1 as q4_0, 1 as q8_0; left out, as activations, keys and values are not rounded: kv_cache_scheme, "
        "input_activations");
  CHECK(file.tensors.at("model.language_model.layers.0.self_attn.q_proj.weight").dtype == DType::kQ8_0);
  CHECK(file.tensors.at("model.language_model.layers.0.mlp.gate.weight").type == "bf16");
  // Names precede expressions, these classes; of expressions the first in the alphabet counts.
  ModulePatterns patterns;
  for (const auto& [text, value] :
       std::vector<std::pair<std::string, size_t>>{{"Linear", 0}, {"re:.*b", 1}, {"re:.*a.*", 2}, {"a.b", 3}})
    REQUIRE(patterns.add(module_pattern(text), value).ok());
  const auto found = [&](const std::string& module) { return patterns.find(module).value(); };
  CHECK(found("a.b") == 3);
  CHECK(found("a.bb") == 2);
  CHECK(found("x.b") == 1);
  CHECK(found("x.c") == 0);
  CHECK(found("model.wte") == std::nullopt);
  CHECK(!patterns.unmatched());
}

TEST_CASE("experts_of_a_layer_have_one_type") {
  for (const bool has_plain : {false, true}) {
    SafetensorsWriter writer;
    add_packed(writer, "mlp.experts.0.up_proj", 2, 64, 4, 32, false);
    if (has_plain) {
      writer.tensor("mlp.experts.1.up_proj.weight", "F16", "[1,2]", "abcd");
    } else {
      add_packed(writer, "mlp.experts.1.up_proj", 2, 64, 4, 32, false);
    }
    add_packed(writer, "mlp.experts.1.down_proj", 2, 64, 4, 32, false);
    ForeignFile file = tensors_of(writer);
    CHECK(described(config("pack-quantized", R"("num_bits":4,"type":"int","strategy":"group","group_size":32)"), file) ==
          (has_plain ? "weights: 1 as f16, 1 as q4_0" : "weights: 3 as q4_0"));
  }
}

TEST_CASE("modelopt_mixes_algorithms_by_module") {
  const Fp4 theirs(64, 16, 0x30);
  SafetensorsWriter writer = theirs.writer("x.weight", "F8_E4M3");
  writer.f32("x.weight_scale_2", "[]", std::vector<float>{1})
      .tensor("experts.3.y.weight", "F8_E4M3", "[1,2]", "ab")
      .f32("experts.3.y.weight_scale", "[]", std::vector<float>{0.5f})
      .tensor("k_proj.k_scale", "F32", "[1]", "abcd");
  ForeignFile file = tensors_of(writer);
  CHECK(described(R"({"quant_method":"modelopt","quant_algo":"MIXED_PRECISION","exclude_modules":["lm*"],)"
                  R"("quantized_layers":{"x":{"quant_algo":"NVFP4","group_size":16},"experts":{"quant_algo":"FP8"}}})",
                  file) ==
        "weights: 1 as f32, 1 as nvfp4; left out, as activations, keys and values are not rounded: 1 of k_scale");
}

TEST_CASE("modules_that_do_not_fit_are_refused_with_a_reason") {
  constexpr std::string_view kWeights = R"("num_bits":4,"type":"int","strategy":"group","group_size":32)";
  const std::string plain = config("pack-quantized", kWeights);
  const auto replaced = [](std::string text, std::string_view from, std::string_view to) {
    const size_t at = text.find(from);
    REQUIRE(at != text.npos);
    return text.replace(at, from.size(), to);
  };
  const std::string two(kTwoGroups);
  check_says(status_of(replaced(two, "(q|k)_proj", "v_proj"), tensors_of(two_groups())),
             "the target 're:.*self_attn[.]v_proj' matches no module");
  check_says(status_of(replaced(two, "\"lm_head\"", "\"re:.*up_proj\""), tensors_of(two_groups())),
             "module 'model.language_model.layers.0.mlp.up_proj' is not to be quantised: 're:.*up_proj' of the modules left as "
             "they are");
  check_says(status_of(replaced(two, "\"Linear\"", "\"lm_head\""), tensors_of(two_groups())),
             "'model.language_model.layers.0.mlp.up_proj.weight_packed' is there");
  check_says(status_of(replaced(two, "\"Linear\"", "\"Linear\",\"model.language_model.embed_tokens\""), tensors_of(two_groups())),
             "tensor 'model.language_model.embed_tokens.weight_packed' is missing");
  check_says(status_of(replaced(two, "\"Linear\"", "\"re:(a*)*b\",\"Linear\""), tensors_of(two_groups())),
             "the target 're:(a*)*b' matches no");
  check_says(status_of(replaced(two, "\"Linear\"", "\"re:(\""), tensors_of(two_groups())), "cannot be run");
  check_says(status_of(replaced(two, R"("lm_head")", R"("re:(?:(\\D+)*)+\\d{40}")"), tensors_of(two_groups())),
             "takes too many steps");
  check_says(status_of(config("pack-quantized", kWeights, R"("re:x")"), packed_file(2, 32, 4, 32, false)),
             "tensor 'm.x.weight_packed' is there, but module 'm.x' is not to be quantised: no group of the configuration");
  check_says(status_of(plain, tensors_of(SafetensorsWriter().tensor("x.weight", "F16", "[1,1]", "ab"))),
             "config_groups.group_0: none of the modules");
  check_says(status_of(plain, tensors_of(SafetensorsWriter().tensor("x.weight_packed", "I32", "[1,1]", "abcd"))),
             "'x.weight_shape' is missing");
  const auto with_shape = [](int64_t N, int64_t K) {
    return tensors_of(SafetensorsWriter()
                          .tensor("x.weight_packed", "I32", "[1,1]", "abcd")
                          .tensor("x.weight_shape", "I64", "[2]", bytes_of(std::vector<int64_t>{N, K}))
                          .tensor("x.weight_scale", "F16", "[1,1]", f16_bytes({HUGE_VALF})));
  };
  for (const auto& [N, K] : {std::pair{int64_t{1}, int64_t{1} << 60},
                             {int64_t{1}, int64_t{0}},
                             {int64_t{1}, int64_t{-8}},
                             {int64_t{2}, int64_t{8}},
                             {int64_t{1}, int64_t{9}}})
    check_says(status_of(plain, with_shape(N, K)),
               format("tensor 'x.weight_shape' is [{}, {}], wanted [1, K] with K codes of 4 bits", N, K));
  check_says(status_of(plain, with_shape(1, 8)), "tensor 'x.weight_scale' has inf at 0");
  check_says(
      status_of(config("pack-quantized", R"("num_bits":4,"type":"int","strategy":"group","group_size":4)"), with_shape(1, 8)),
      "tensor 'x.weight_scale' is [1, 1], wanted [1, 2]");
  check_says(status_of(config("pack-quantized", R"("num_bits":4,"symmetric":false,"strategy":"channel")"), with_shape(1, 8)),
             "'x.weight_zero_point' is missing");
  check_says(
      status_of(
          R"({"quant_method":"modelopt","quant_algo":"FP8"})",
          tensors_of(
              SafetensorsWriter().tensor("x.weight", "U8", "[1,1]", "a").f32("x.weight_scale", "[]", std::vector<float>{1}))),
      "tensor 'x.weight' is u8 [1, 1], wanted a matrix of f8_e4m3");
  check_says(
      status_of(
          R"({"quant_method":"modelopt","quant_algo":"NVFP4_AWQ"})",
          tensors_of(
              SafetensorsWriter().tensor("x.weight", "U8", "[1,1]", "a").f32("x.pre_quant_scale", "[1]", std::vector<float>{1}))),
      "pre_quant_scale' scales the inputs");
}

TEST_CASE("configurations_of_modules_that_are_not_known_are_refused_by_name_and_value") {
  constexpr std::string_view kInt4 = R"("num_bits":4,"type":"int","strategy":"group","group_size":32)";
  const std::pair<std::string, std::string_view> cases[] = {
      {config("marlin-24", kInt4), "format is 'marlin-24'; known: dense, float-quantized"},
      {config("pack-quantized", R"("num_bits":16,"group_size":32)"), "num_bits is 16; pack-quantized can be read with 1 to 8"},
      {config("pack-quantized", R"("num_bits":4,"group_size":-5)"), "group_size is -5, wanted a whole number from -1"},
      {config("pack-quantized", R"("num_bits":4,"group_size":0)"), "group_size is 0"},
      {config("pack-quantized", R"("num_bits":4,"strategy":"token")"),
       "strategy is 'token'; known for pack-quantized: channel, group, tensor"},
      {config("float-quantized", R"("num_bits":8,"type":"float","symmetric":false)"), "symmetric is false"},
      {config("float-quantized", R"("num_bits":8,"type":"float","strategy":"block","block_structure":[0,128])"),
       "block_structure is [0,128]"},
      {config("float-quantized", R"("num_bits":8,"type":"int")"), "type is 'int'; float-quantized has 'float'"},
      {config("nvfp4-pack-quantized", R"("num_bits":4,"type":"float","strategy":"tensor_group","group_size":32)"),
       "group_size is 32; nvfp4-pack-quantized has groups of 16"},
      {config("pack-quantized", kInt4, R"("Linear")", R"("sparsity_config":{"format":"sparse-24-bitmask"},)"),
       "sparsity_config is"},
      {config("pack-quantized", kInt4, R"("Linear")", R"("transform_config":{"config_groups":{}},)"), "transform_config is"},
      {config("pack-quantized", kInt4, R"("Linear")", R"("quantization_status":"frozen",)"), "quantization_status is \"frozen\""},
      {config("pack-quantized", kInt4, ""), "targets is empty"},
      {R"({"quant_method":"compressed-tensors","format":"pack-quantized"})", "config_groups is missing"},
      {R"({"quant_method":"compressed-tensors","config_groups":{"W4A16":["Linear"]}})", "wanted an object"},
      {R"({"quant_method":"modelopt","quant_algo":"W4A16_AWQ"})", "quant_algo is 'W4A16_AWQ'; known: FP8"},
      {R"({"quant_method":"modelopt","quant_algo":"MIXED_PRECISION"})", "quantized_layers is missing"},
  };
  for (const auto& [text, words] : cases) {
    const auto json = parse_json(text, "quantization_config");
    REQUIRE_MESSAGE(json.ok(), text);
    check_says(read_folder_quantization(*json).status(), words);
  }
  std::optional<FolderQuantization> stated = quantization(R"({"quant_method":"modelopt","quant_algo":"FP8","ignore":["a"]})");
  const auto file = [](std::string_view text) { return parse_json(text, "hf_quant_config.json").value(); };
  CHECK(read_modelopt_file(file(R"({"quantization":{"quant_algo":"FP8","exclude_modules":["a"]}})"), stated).ok());
  check_says(read_modelopt_file(file(R"({"quantization":{"quant_algo":"NVFP4","exclude_modules":["a"]}})"), stated),
             "has quant_algo 'FP8', hf_quant_config.json 'NVFP4'");
  check_says(read_modelopt_file(file(R"({"quantization":{"quant_algo":"FP8"}})"), stated),
             "has exclude_modules 'a', hf_quant_config.json ''");
  stated = quantization(R"({"quant_method":"mxfp4"})");
  check_says(read_modelopt_file(file(R"({"quantization":{"quant_algo":"FP8"}})"), stated), "another quant_method than modelopt");
  stated = std::nullopt;
  CHECK(read_modelopt_file(file(R"({"quantization":{"quant_algo":"NVFP4"}})"), stated).ok());
  CHECK(stated.has_value());
}

}  // namespace tessera
