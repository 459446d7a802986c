#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/half.h"
#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "graph/transform/weight_storage.h"
#include "serialize/import/gguf_file.h"
#include "serialize/model.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/serialize/test_data.h"
#include "tests/whole_model.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

Status import_status(std::string_view bytes) {
  auto model = import_gguf(source_of(bytes));
  return model.ok() ? Status() : model.status();
}

// Refused, as `code`, with `words` in the message.
void check_refused(const GgufBuilder& writer, StatusCode code, std::string_view words) {
  const Status status = import_status(writer.finish());
  CAPTURE(status.to_string());
  CHECK(status.code() == code);
  CHECK(status.message().find(words) != std::string_view::npos);
}

std::vector<float> floats(const HostTensor& tensor) {
  return {tensor.as<float>().begin(), tensor.as<float>().end()};
}

GgufBuilder small_gpt2() {
  GgufBuilder w;
  w.text("general.architecture", "gpt2");
  w.u32("gpt2.block_count", 1).u32("gpt2.embedding_length", 4).u32("gpt2.attention.head_count", 2);
  w.u32("gpt2.feed_forward_length", 8)
      .u32("gpt2.context_length", 6)
      .f32("gpt2.attention.layer_norm_epsilon", 1e-5f);
  auto tensor = [&](const std::string& name, std::vector<uint64_t> dims) {
    size_t count = 1;
    for (uint64_t dim : dims) count *= dim;
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
    w.tensor_f32(name, dims, values);
  };
  tensor("token_embd.weight", {4, 10});
  tensor("position_embd.weight", {4, 6});
  for (std::string norm : {"blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"}) {
    tensor(norm + ".weight", {4});
    tensor(norm + ".bias", {4});
  }
  tensor("blk.0.attn_qkv.weight", {4, 12});
  tensor("blk.0.attn_qkv.bias", {12});
  tensor("blk.0.attn_output.weight", {4, 4});
  tensor("blk.0.attn_output.bias", {4});
  tensor("blk.0.ffn_up.weight", {4, 8});
  tensor("blk.0.ffn_up.bias", {8});
  tensor("blk.0.ffn_down.weight", {8, 4});
  tensor("blk.0.ffn_down.bias", {4});
  return w;
}

}  // namespace

TEST_CASE("the_stories_model_becomes_a_tied_llama_with_its_vocabulary") {
  TSR_SHARED_FILE(path, "models/stories260K.gguf");
  auto source = open_file(path);
  REQUIRE(source.ok());
  auto model = import_gguf(*source);
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  CHECK(model->graph.verify().ok());
  CHECK(model->metadata["architecture"] == "llama");
  CHECK(model->metadata["context_length"] == "2048");
  CHECK(model->parameters.size() == 1 + 5 * 9 + 1);  // the output projection repeats the embedding
  CHECK(model->parameters.size() == model->graph.tensors_of_kind(TensorKind::kParameter).size());
  CHECK(to_text(model->parameters.at("block.4.k").type) == "f32[32, 64]");
  CHECK(to_text(model->parameters.at("block.0.down").type) == "f32[64, 172]");
  CHECK(model->graph.find_output("logits").has_value());
  REQUIRE(model->tokenizer.has_value());
  auto tokenizer = Tokenizer::create(*model->tokenizer);
  REQUIRE(tokenizer.ok());
  CHECK((*tokenizer)->vocabulary_size() == 512);
  const std::string text = "Once upon a time, Lily went to the park.";
  CHECK((*tokenizer)->decode(*(*tokenizer)->encode(text)) == text);
}

TEST_CASE("chat_templates_become_metadata") {
  GgufBuilder w = small_gpt2();
  w.text("tokenizer.chat_template", "{{ messages }}").text("tokenizer.chat_template.tool_use", "{{ tools }}");
  const auto model = import_gguf(source_of(w.finish()));
  REQUIRE(model.ok());
  CHECK(model->metadata.at("chat_template") == "{{ messages }}");
  CHECK(model->metadata.at("chat_template.tool_use") == "{{ tools }}");
  CHECK_FALSE(model->metadata.contains("ggml.model"));
}

TEST_CASE("a_file_without_tensors_is_refused_and_its_vocabulary_stays_usable") {
  GgufBuilder bare = small_llama_metadata();
  check_refused(bare, StatusCode::kCorrupt, "'token_embd.weight', 'blk.0.attn_norm.weight', ");
  check_refused(bare, StatusCode::kCorrupt, " and 18 more are missing");
  check_refused(bare, StatusCode::kCorrupt, "can be used as a tokenizer");
  // Sizes that no memory holds cost nothing.
  bare.u32("llama.vocab_size", 1000000000);
  check_refused(bare, StatusCode::kCorrupt, "are missing");
  GgufBuilder other;
  other.text("general.architecture", "mpt")
      .text("tokenizer.ggml.model", "bert")
      .texts("tokenizer.ggml.tokens", {"[UNK]", "a"});
  check_refused(other, StatusCode::kUnsupported, "its vocabulary can be used as a tokenizer");
  GgufBuilder encoder;
  encoder.text("general.architecture", "bert")
      .text("tokenizer.ggml.model", "bert")
      .texts("tokenizer.ggml.tokens", {"[UNK]", "a"});
  check_refused(encoder, StatusCode::kCorrupt, "can be used as a tokenizer");
}

TEST_CASE("every_missing_tensor_is_refused_by_name") {
  const std::vector<std::string> all = small_llama_tensors(false);
  for (const std::string& left_out : all) {
    CAPTURE(left_out);
    const Status status = import_status(small_llama(false, left_out).finish());
    // Without an output projection the embedding is one.
    if (left_out == "output.weight") {
      CHECK(status.ok());
    } else {
      CHECK(status.code() == StatusCode::kCorrupt);
      CHECK(status.message().find("tensor '" + left_out + "' is missing") != std::string_view::npos);
    }
  }
}

TEST_CASE("llama_parameters_come_in_place_and_by_name") {
  const std::string bytes = small_llama(false).finish();
  auto model = import_gguf(source_of(bytes));
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  CHECK(model->parameters.size() == 21);
  CHECK(model->parameters.at("token_embedding").as<float>()[0] == 1.0f / 1024);
  CHECK(model->parameters.at("block.0.q").as<float>()[0] == (96 + 8 + 1) / 1024.0f);
  auto unmapped = import_gguf(std::make_shared<UnmappedSource>(bytes));
  REQUIRE_MESSAGE(unmapped.ok(), unmapped.status().to_string());
  for (const auto& [name, tensor] : model->parameters) {
    CAPTURE(name);
    CHECK(floats(tensor) == floats(unmapped->parameters.at(name)));
  }
}

TEST_CASE("an_absent_output_projection_is_the_embedding") {
  auto model = import_gguf(source_of(small_llama(true).finish()));
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  CHECK(!model->parameters.contains("output"));
  CHECK(!model->graph.find_tensor("output").has_value());
}

TEST_CASE("the_fused_projection_of_gpt2_is_split_into_q_k_v") {
  auto model = import_gguf(source_of(small_gpt2().finish()));
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  CHECK(floats(model->parameters.at("block.0.q.bias")) == std::vector<float>{0, 1, 2, 3});
  CHECK(floats(model->parameters.at("block.0.k.bias")) == std::vector<float>{4, 5, 6, 7});
  CHECK(floats(model->parameters.at("block.0.v.bias")) == std::vector<float>{8, 9, 10, 11});
  CHECK(model->parameters.at("block.0.v.weight").as<float>()[0] == 32.0f);
  CHECK(model->parameters.size() == model->graph.tensors_of_kind(TensorKind::kParameter).size());
}

TEST_CASE("numbers_of_16_bits_become_f32") {
  CHECK(f32_from_f16(0x3c00) == 1.0f);
  CHECK(f32_from_f16(0xc000) == -2.0f);
  CHECK(f32_from_f16(0x0001) == 0x1p-24f);
  CHECK(f32_from_f16(0x83ff) == -1023 * 0x1p-24f);
  CHECK(f32_from_f16(0x7bff) == 65504.0f);
  CHECK(std::isinf(f32_from_f16(0x7c00)));
  CHECK(std::isnan(f32_from_f16(0x7e00)));
  CHECK(std::signbit(f32_from_f16(0x8000)));
  CHECK(f32_from_bf16(0x3f80) == 1.0f);
}

TEST_CASE("every_type_of_weights_is_kept_and_decodes_as_its_blocks_do") {
  const std::pair<uint32_t, DType> types[] = {
      {0, DType::kF32},      {1, DType::kF16},     {2, DType::kQ4_0},     {3, DType::kQ4_1},
      {6, DType::kQ5_0},     {7, DType::kQ5_1},    {8, DType::kQ8_0},     {10, DType::kQ2_K},
      {11, DType::kQ3_K},    {12, DType::kQ4_K},   {13, DType::kQ5_K},    {14, DType::kQ6_K},
      {16, DType::kIQ2_XXS}, {17, DType::kIQ2_XS}, {18, DType::kIQ3_XXS}, {19, DType::kIQ1_S},
      {20, DType::kIQ4_NL},  {21, DType::kIQ3_S},  {22, DType::kIQ2_S},   {23, DType::kIQ4_XS},
      {28, DType::kF64},     {29, DType::kIQ1_M},  {30, DType::kBF16},    {34, DType::kTQ1_0},
      {35, DType::kTQ2_0},   {39, DType::kMXFP4},  {40, DType::kNVFP4},   {41, DType::kQ1_0},
      {42, DType::kQ2_0}};
  for (const auto& [id, type] : types) {
    CAPTURE(to_text(type));
    const std::string bytes = block_bytes(id, 256 * 128);
    for (bool mapped : {true, false}) {
      const std::string file = block_llama({id}).finish();
      auto model = import_gguf(mapped ? source_of(file) : std::make_shared<UnmappedSource>(file));
      REQUIRE_MESSAGE(model.ok(), model.status().to_string());
      std::vector<float> expected(256 * 128);
      decode_blocks(type, std::as_bytes(std::span(bytes)).data(), expected.data(), 256 * 128);
      const HostTensor& stored = model->parameters.at("block.0.k");
      CHECK(stored.type.dtype == (type == DType::kF64 ? DType::kF32 : type));  // weights are no f64
      const HostTensor wide = *widen_weight(stored);
      const auto read = wide.as<float>();
      REQUIRE(read.size() == expected.size());
      CHECK(std::memcmp(read.data(), expected.data(), read.size_bytes()) == 0);
    }
  }
}

TEST_CASE("types_that_files_of_weights_do_not_have_are_refused_by_name") {
  const std::pair<uint32_t, std::string_view> types[] = {
      {4, "q4_2"},
      {9, "q8_1 (number 9): it is for activations"},
      {15, "q8_k"},
      {25, "i16"},
      {33, "q4_0_8_8 (number 33): the format has withdrawn it"},
      {36, "iq4_nl_4_4"},
      {43, "type number 43; the last known is 42"},
      {~0u, "type number 4294967295"}};
  for (const auto& [id, words] : types) {
    GgufBuilder w = small_llama(false);
    w.tensor("extra", id, {256}, std::string(1024, '\0'));
    check_refused(w, StatusCode::kUnsupported, words);
  }
}

TEST_CASE("a_mixture_says_how_many_experts_a_token_visits") {
  const auto with = [](const std::vector<std::pair<std::string_view, uint32_t>>& keys) {
    GgufBuilder w = small_llama_metadata();
    for (const auto& [key, value] : keys) w.u32(key, value);
    return w;
  };
  constexpr std::string_view kCount = "llama.expert_count", kUsed = "llama.expert_used_count";
  check_refused(with({{kCount, 4}}), StatusCode::kCorrupt, "expert_count is 4 and llama.expert_used_count 0");
  check_refused(with({{kCount, 4}, {kUsed, 5}}), StatusCode::kCorrupt, "expert_used_count 5");
  check_refused(with({{kCount, 4}, {kUsed, 2}, {"llama.expert_shared_count", 1}}), StatusCode::kUnsupported,
                "llama.expert_shared_count is 1");
  check_refused(with({{kCount, 4}, {kUsed, 2}, {"llama.expert_gating_func", 2}}), StatusCode::kUnsupported,
                "llama.expert_gating_func is 2");
  // An expert a tensor, as older files have them, is not read.
  check_refused(with({{kCount, 4}, {kUsed, 2}}), StatusCode::kCorrupt, "are missing");
  GgufBuilder other = small_gpt2();
  other.u32("gpt2.expert_count", 4);
  check_refused(other, StatusCode::kUnsupported, "a gpt2 of 4 experts is not supported");
}

TEST_CASE("a_weight_s_scale_multiplies_its_products") {
  const auto with = [](std::string_view name, const std::vector<float>& values) {
    GgufBuilder w = block_llama({40});
    w.tensor_f32(name, {values.size()}, values);
    return w;
  };
  const auto plain = import_gguf(source_of(block_llama({40}).finish()));
  const auto scaled = import_gguf(source_of(with("blk.0.attn_q.scale", {0.3f}).finish()));
  REQUIRE(plain.ok());
  REQUIRE_MESSAGE(scaled.ok(), scaled.status().to_string());
  CHECK(scaled->parameters.size() == plain->parameters.size());
  CHECK(scaled->graph.nodes().size() == plain->graph.nodes().size() + 1);
  CHECK(!scaled->metadata.contains("description"));
  int found = 0;
  for (const Node& node : scaled->graph.nodes()) {
    if (node.op->name != "scale") continue;
    ++found;
    CHECK(static_cast<float>(attr_f64(node.attrs, "factor")) == 0.3f);
    const Node& matmul = scaled->graph.node(scaled->graph.tensor(node.inputs[0]).producer);
    CHECK(matmul.op->name == "quantized_matmul");
    CHECK(scaled->graph.tensor(matmul.inputs[1]).name == "block.0.q");
    CHECK(scaled->graph.type(matmul.inputs[1]).dtype == DType::kNVFP4);
    CHECK(node.scope == matmul.scope);
  }
  CHECK(found == 1);
  // By 1 nothing changes.
  const auto one = import_gguf(source_of(with("blk.0.attn_q.scale", {1}).finish()));
  REQUIRE(one.ok());
  CHECK(one->graph.fingerprint() == plain->graph.fingerprint());

  check_refused(with("blk.0.attn_q.scale", {1, 2}), StatusCode::kUnsupported,
                "'blk.0.attn_q.scale' is f32 of 8 bytes; a weight's scale is one number of f32");
  check_refused(with("blk.0.attn_q.scale", {}), StatusCode::kUnsupported, "of 0 bytes");
  check_refused(with("blk.0.attn_q.scale", {NAN}), StatusCode::kCorrupt, "a weight's scale is finite");
  check_refused(with("token_embd.scale", {2}), StatusCode::kUnsupported, "but embedding reads it");
  check_refused(with("output_norm.scale", {2}), StatusCode::kUnsupported, "but rms_norm reads it");
  check_refused(with("blk.0.attn_q.input_scale", {1}), StatusCode::kUnsupported, "has no place");
  check_refused(with("blk.1.attn_q.scale", {1}), StatusCode::kUnsupported, "has no place");
}

TEST_CASE("every_metadata_type_is_read") {
  GgufBuilder w;
  w.scalar("u8", 0, uint8_t{200})
      .scalar("i8", 1, int8_t{-3})
      .scalar("u16", 2, uint16_t{60000})
      .scalar("i16", 3, int16_t{-5});
  w.u32("u32", 7).scalar("i32", 5, int32_t{-9}).f32("f32", 0.5f).flag("bool", true).text("text", "hi");
  w.scalar("u64", 10, uint64_t{1} << 40).scalar("i64", 11, int64_t{-1}).scalar("f64", 12, 0.25);
  w.texts("texts", {"a", "", "c"})
      .numbers("numbers", 3, std::vector<int16_t>{-1, 2})
      .numbers("floats", 6, std::vector<float>{1, 2});
  for (uint32_t version : {2u, 3u}) {
    w.version = version;
    auto file = GgufFile::open(source_of(w.finish()));
    REQUIRE_MESSAGE(file.ok(), file.status().to_string());
    CHECK(*file->integer("u8") == 200);
    CHECK(*file->integer("i8") == -3);
    CHECK(*file->integer("u16") == 60000);
    CHECK(*file->integer("i16") == -5);
    CHECK(*file->integer("i32") == -9);
    CHECK(*file->integer("u64") == int64_t{1} << 40);
    CHECK(*file->real("f32") == 0.5);
    CHECK(*file->real("f64") == 0.25);
    CHECK(*file->flag("bool"));
    CHECK(*file->text("text") == "hi");
    CHECK(*file->texts("texts") == std::vector<std::string>{"a", "", "c"});
    CHECK(*file->integers("numbers") == std::vector<int64_t>{-1, 2});
    CHECK(*file->floats("floats") == std::vector<float>{1, 2});
    CHECK(!file->integer("text").ok());
    CHECK(!file->text("absent").ok());
    CHECK(*file->integer("absent", 4) == 4);
  }
}

TEST_CASE("a_file_cut_anywhere_is_refused") {
  const std::string bytes = small_llama(true).finish();
  for (size_t size = 0; size < bytes.size(); size += size < 1200 ? 1 : 97) {
    const Status status = import_status(std::string_view(bytes).substr(0, size));
    CAPTURE(size);
    CHECK(!status.ok());
    CHECK(status.code() != StatusCode::kInternal);
  }
}

TEST_CASE("hostile_files_are_refused_with_a_reason") {
  GgufBuilder w = small_llama(false);
  w.magic = "GGML";
  check_refused(w, StatusCode::kCorrupt, "GGUF");
  w = small_llama(false);
  w.version = 1;
  check_refused(w, StatusCode::kUnsupported, "version 1");
  w.version = 0x03000000;
  check_refused(w, StatusCode::kUnsupported, "big-endian");
  w = small_llama(false);
  w.tensor_count = uint64_t{1} << 60;
  check_refused(w, StatusCode::kCorrupt, "do not fit");
  w = small_llama(false);
  w.value_count = ~uint64_t{0};
  check_refused(w, StatusCode::kCorrupt, "do not fit");
  w = small_llama(false);
  w.array_head("long", 4, uint64_t{1} << 62);
  check_refused(w, StatusCode::kCorrupt, "'long'");
  w = small_llama(false);
  w.array_head("many", 8, 1 << 30);
  check_refused(w, StatusCode::kCorrupt, "'many'");
  w = small_llama(false);
  w.text("general.name", "again");
  check_refused(w, StatusCode::kCorrupt, "twice");
  w = small_llama(false);
  w.scalar("strange", 13, 1);
  check_refused(w, StatusCode::kCorrupt, "type 13");
  w = small_llama(false);
  w.scalar("maybe", 7, uint8_t{2});
  check_refused(w, StatusCode::kCorrupt, "'maybe'");
  w = small_llama(false);
  w.u32("general.alignment", 3);
  check_refused(w, StatusCode::kCorrupt, "power of two");
  w = small_llama(false);
  w.tensor_f32("output_norm.weight", {8}, std::vector<float>(8));
  check_refused(w, StatusCode::kCorrupt, "twice");
  w = small_llama(false);
  w.tensor("extra", 12, {256}, std::string(144, '\0'));
  check_refused(w, StatusCode::kUnsupported, "'extra' has no place");
  w = small_llama(false);
  w.tensor_f32("rope_freqs.weight", {3}, {1, 1, 1});  // a head has two pairs
  check_refused(w, StatusCode::kCorrupt, "rope_freqs.weight");
  w = small_llama(false);
  w.tensor_at("extra", 0, {8}, 0, "");
  check_refused(w, StatusCode::kCorrupt, "overlap");
  w = small_llama(false);
  w.tensor_at("extra", 0, {8}, 4, "");
  check_refused(w, StatusCode::kCorrupt, "multiple of 32");
  w = small_llama(false);
  w.tensor_at("extra", 0, {8}, ~uint64_t{0} >> 1, "");
  check_refused(w, StatusCode::kCorrupt, "extra");
  w = small_llama(false);
  w.tensor_at("extra", 0, {uint64_t{1} << 33, uint64_t{1} << 33}, 0, "");
  check_refused(w, StatusCode::kCorrupt, "too many elements");
  w = small_llama(false);
  w.tensor_at("extra", 8, {31}, 0, "");
  check_refused(w, StatusCode::kCorrupt, "blocks of 32");
  w = small_llama(false);
  w.tensor_at("extra", 0, {1, 1, 1, 1, 1}, 0, "");
  check_refused(w, StatusCode::kCorrupt, "5 dims");
  w = small_llama(false);
  w.text("llama.rope.scaling.type", "spiral").f32("llama.rope.scaling.factor", 2);
  check_refused(w, StatusCode::kUnsupported, "spiral");
}

TEST_CASE("layers that read keys of others are some of the model's") {
  const auto with = [](int32_t shared) {
    GgufBuilder w;
    w.text("general.architecture", "gemma4").u32("gemma4.block_count", 2).u32("gemma4.embedding_length", 8);
    w.u32("gemma4.attention.head_count", 2).u32("gemma4.feed_forward_length", 6).u32("gemma4.context_length", 16);
    w.f32("gemma4.attention.layer_norm_rms_epsilon", 1e-6f).scalar("gemma4.attention.shared_kv_layers", 5, shared);
    w.tensor_f32("token_embd.weight", {8, 3}, std::vector<float>(24));
    return w;
  };
  check_refused(with(-3), StatusCode::kCorrupt, "gemma4.attention.shared_kv_layers is -3, wanted 0 or more");
  check_refused(with(2), StatusCode::kInvalidArgument, "shared_kv = 2 layers read keys of others, wanted fewer than L = 2");
  check_refused(with(INT32_MAX), StatusCode::kInvalidArgument, "wanted fewer than L = 2");
}

TEST_CASE("a_model_that_does_not_fit_its_tensors_is_refused") {
  GgufBuilder w;
  w.text("general.architecture", "mamba").tensor_f32("x", {1}, {1});
  check_refused(w, StatusCode::kUnsupported, "mamba");
  w = GgufBuilder();
  w.text("general.architecture", "llama");
  check_refused(w, StatusCode::kCorrupt, "llama.block_count");
  w = small_gpt2();
  w.u32("gpt2.vocab_size", 5);
  CHECK(import_status(w.finish()).ok());  // the tensor says how many there are
  std::string bytes = small_llama(false).finish();
  const size_t at = bytes.find("llama.feed_forward_length") + 25 + 4;
  bytes[at] = 17;
  const Status status = import_status(bytes);
  CHECK(status.code() == StatusCode::kCorrupt);
  CHECK(status.message().find("ffn_") != std::string_view::npos);
}

TEST_CASE("what_a_variant_computes_otherwise_is_taken_in_or_refused") {
  const auto with = [](std::string_view key, float value) {
    GgufBuilder w = small_llama(false);
    w.f32(key, value);
    return w;
  };
  GgufBuilder window = small_llama(false);
  window.u32("llama.attention.sliding_window", 12);
  auto model = import_gguf(source_of(window.finish()));
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  CHECK(model->metadata.at("description").find("window=12") != std::string::npos);
  window = small_llama(false);
  window.u32("llama.attention.sliding_window", 64);  // longer than the context: nothing changes
  model = import_gguf(source_of(window.finish()));
  CHECK(model->metadata.at("description").find("window") == std::string::npos);

  check_refused(with("llama.logit_scale", 0.5f), StatusCode::kUnsupported, "logit_scale is 0.5");
  check_refused(with("llama.embedding_scale", 12), StatusCode::kUnsupported, "embedding_scale");
  check_refused(with("llama.residual_scale", 0.2f), StatusCode::kUnsupported, "residual_scale");
  check_refused(with("llama.attention.scale", 0.1f), StatusCode::kUnsupported, "root of the head size 4");
  // A factor without a type is linear scaling to the format's reference reader; the type "none" undoes one.
  for (const char* const key : {"llama.rope.scale_linear", "llama.rope.scaling.factor"}) {
    const auto linear = import_gguf(source_of(with(key, 4).finish()));
    REQUIRE_MESSAGE(linear.ok(), linear.status().to_string());
    CHECK(std::ranges::equal(linear->parameters.at("rope_factors").as<float>(), std::vector<float>{4, 4}));
  }
  GgufBuilder llama3 = small_llama(false);
  llama3.tensor_f32("rope_freqs.weight", {2}, {1, 8});
  const auto by_tensor = import_gguf(source_of(llama3.finish()));
  REQUIRE_MESSAGE(by_tensor.ok(), by_tensor.status().to_string());
  CHECK(std::ranges::equal(by_tensor->parameters.at("rope_factors").as<float>(), std::vector<float>{1, 8}));
  GgufBuilder scaled = with("llama.rope.scaling.factor", 4);
  scaled.text("llama.rope.scaling.type", "none");
  CHECK(import_status(scaled.finish()).ok());
  scaled = with("llama.rope.scaling.factor", 1);
  scaled.text("llama.rope.scaling.type", "linear");
  CHECK(import_status(scaled.finish()).ok());
  // These multiply or bound whatever else is said, so that no type of scaling makes them nothing.
  for (const std::string_view key :
       {"llama.rope.scaling.attn_factor", "llama.rope.scaling.yarn_attn_factor",
        "llama.rope.scaling.yarn_ext_factor", "llama.rope.scaling.yarn_log_multiplier",
        "llama.attn_logit_softcapping", "llama.final_logit_softcapping", "llama.attention.clamp_kqv",
        "llama.attention.max_alibi_bias"}) {
    for (const std::string_view type : {"", "none", "linear"}) {
      GgufBuilder factor = with(key, 1.5f);
      if (!type.empty()) factor.text("llama.rope.scaling.type", type);
      check_refused(factor, StatusCode::kUnsupported, std::string(key) + " is 1.5");
    }
  }
  CHECK(import_status(with("llama.rope.scaling.attn_factor", 1).finish()).ok());
  GgufBuilder parallel = small_llama(false);
  parallel.flag("llama.use_parallel_residual", true);
  check_refused(parallel, StatusCode::kUnsupported, "use_parallel_residual");
  GgufBuilder grouped = small_gpt2();
  grouped.u32("gpt2.attention.head_count_kv", 1);
  check_refused(grouped, StatusCode::kUnsupported, "2 heads with 1 of keys");
  GgufBuilder both_ways = small_llama(false);
  both_ways.flag("llama.attention.causal", false);
  check_refused(both_ways, StatusCode::kUnsupported, "attention.causal");
  CHECK(import_status(with("llama.attention.scale", 0.5f).finish()).ok());  // 1 / sqrt(4)
  CHECK(import_status(with("llama.logit_scale", 1).finish()).ok());
}

TEST_CASE("values_by_layer_are_taken_where_all_are_equal") {
  const auto layered = [](std::string_view key, const std::vector<uint32_t>& values) {
    GgufBuilder w = small_llama_metadata(key);
    w.numbers(key, 4, values);
    small_llama_tensors(false, &w);
    return w;
  };
  const auto plain = import_gguf(source_of(small_llama(false).finish()));
  REQUIRE(plain.ok());
  for (const auto& [key, value] : {std::pair<std::string, uint32_t>{"llama.attention.head_count", 2},
                                   {"llama.attention.head_count_kv", 1},
                                   {"llama.feed_forward_length", 16}}) {
    CAPTURE(key);
    const auto model = import_gguf(source_of(layered(key, {value, value}).finish()));
    REQUIRE_MESSAGE(model.ok(), model.status().to_string());
    CHECK(model->graph.fingerprint() == plain->graph.fingerprint());
    check_refused(layered(key, {value, value + 1}), StatusCode::kUnsupported, "in layer 1; only models");
    check_refused(layered(key, {value}), StatusCode::kCorrupt, "has 1 values, the model has 2 layers");
    check_refused(layered(key, {}), StatusCode::kCorrupt, "has 0 values");
  }
}

TEST_CASE("what_was_read_of_a_file_can_be_told") {
  GgufBuilder w = small_llama(true);
  w.f32("llama.rope.freq_base", 500).text("tokenizer.notes", std::string(200, 'x'));
  w.u32("llama.never_heard_of", 3);
  const auto model = import_gguf(source_of(w.finish()));
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  const ModelOrigin& origin = model->origin;
  CHECK(origin.format == "gguf");
  REQUIRE(origin.stored.size() == 1);
  CHECK(origin.stored[0].type == "f32");
  CHECK(origin.stored[0].tensors == 20);
  using Entry = std::pair<std::string, std::string>;
  const auto holds = [](const std::vector<Entry>& list, const Entry& entry) {
    return std::ranges::find(list, entry) != list.end();
  };
  CHECK(holds(origin.used, {"llama.rope.freq_base", "500"}));
  CHECK(holds(origin.used, {"llama.attention.head_count_kv", "1"}));
  CHECK(holds(origin.used, {"tokenizer.ggml.tokens", "[12 x string]"}));
  CHECK(holds(origin.unused, {"llama.never_heard_of", "3"}));
  CHECK(holds(origin.unused, {"tokenizer.notes", std::string(80, 'x') + "... (200 bytes)"}));
  CHECK(origin.used.size() + origin.unused.size() == w.value_count);
  // The description makes the same graph.
  const auto config = parse_shorthand(model->metadata.at("description"));
  REQUIRE_MESSAGE(config.ok(), config.status().to_string());
  CHECK(build_model(*config)->fingerprint() == model->graph.fingerprint());
}
