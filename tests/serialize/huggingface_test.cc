// Hugging Face folders: what comes out of them, and what is refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>

#include "graph/base/text.h"
#include "serialize/import/huggingface_config.h"
#include "serialize/import/safetensors.h"
#include "serialize/model.h"
#include "serialize/opened_model.h"
#include "tests/serialize/gguf_writer.h"
#include "tests/serialize/safetensors_writer.h"
#include "tests/serialize/test_data.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

constexpr std::string_view kConfig =
    R"({"model_type":"qwen2","hidden_size":4,"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,)"
    R"("intermediate_size":6,"vocab_size":5,"max_position_embeddings":16,"rms_norm_eps":1e-6,"eos_token_id":[3,4]})";

// The numbers of tensor `number`: number, number + 1/16, ...
std::vector<float> values_of(int64_t number, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(number) + static_cast<float>(i) / 16;
  return values;
}

struct Named {
  std::string name, shape;
  int64_t count;
};
const std::vector<Named> kTensors = {
    {"model.embed_tokens.weight", "[5,4]", 20},
    {"model.norm.weight", "[4]", 4},
    {"lm_head.weight", "[5,4]", 20},
    {"model.layers.0.input_layernorm.weight", "[4]", 4},
    {"model.layers.0.self_attn.q_proj.weight", "[4,4]", 16},
    {"model.layers.0.self_attn.k_proj.weight", "[2,4]", 8},
    {"model.layers.0.self_attn.v_proj.weight", "[2,4]", 8},
    {"model.layers.0.self_attn.o_proj.weight", "[4,4]", 16},
    {"model.layers.0.self_attn.q_proj.bias", "[4]", 4},
    {"model.layers.0.self_attn.k_proj.bias", "[2]", 2},
    {"model.layers.0.self_attn.v_proj.bias", "[2]", 2},
    {"model.layers.0.post_attention_layernorm.weight", "[4]", 4},
    {"model.layers.0.mlp.gate_proj.weight", "[6,4]", 24},
    {"model.layers.0.mlp.up_proj.weight", "[6,4]", 24},
    {"model.layers.0.mlp.down_proj.weight", "[4,6]", 24},
};

SafetensorsWriter tensors(size_t begin, size_t end) {
  SafetensorsWriter writer;
  for (size_t i = begin; i < end; ++i)
    writer.f32(kTensors[i].name, kTensors[i].shape, values_of(static_cast<int64_t>(i), kTensors[i].count));
  return writer;
}

Result<Model> open_folder(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(auto source, open_model_file(path));
  TSR_ASSIGN_OR_RETURN(OpenedModel opened, open_model(std::move(source)));
  return read_values(std::move(opened));
}

std::vector<float> floats(const Model& model, std::string_view name) {
  const auto values = model.parameters.find(name)->second.as<float>();
  return {values.begin(), values.end()};
}

void write_whole(const ScratchFolder& folder, std::string_view config = kConfig) {
  write_text_file(folder / "config.json", std::string(config));
  write_text_file(folder / "model.safetensors", tensors(0, kTensors.size()).finish());
}

Status config_status(std::string_view text) {
  TSR_ASSIGN_OR_RETURN(const Json json, parse_json(text, "config.json"));
  return read_huggingface_config(json).status();
}

}  // namespace

TEST_CASE("a_folder_is_a_model_whose_values_stay_in_the_file") {
  ScratchFolder folder;
  write_whole(folder);
  for (const std::string& path : {folder.path(), folder.path() + "/", folder / "model.safetensors"}) {
    CAPTURE(path);
    const auto model = open_folder(path);
    REQUIRE_MESSAGE(model.ok(), model.status().to_string());
    CHECK(model->metadata.at("architecture") == "qwen2");
    CHECK(model->metadata.at("context_length") == "16");
    CHECK(floats(*model, "token_embedding") == values_of(0, 20));
    CHECK(floats(*model, "output") == values_of(2, 20));
    CHECK(floats(*model, "block.0.k") == values_of(5, 8));
    CHECK(floats(*model, "block.0.q.bias") == values_of(8, 4));
    CHECK(floats(*model, "block.0.down") == values_of(14, 24));
  }
}

TEST_CASE("a_folder_brings_its_tokenizer") {
  ScratchFolder folder;
  write_whole(folder);
  CHECK(!open_folder(folder.path())->tokenizer.has_value());
  write_text_file(folder / "tokenizer.json",
                  R"({"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}})");
  write_text_file(folder / "generation_config.json", R"({"eos_token_id": [1]})");
  const auto model = open_folder(folder.path());
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  REQUIRE(model->tokenizer.has_value());
  CHECK(model->tokenizer->kind == TokenizerKind::kPipeline);
  CHECK(model->tokenizer->end_ids == std::vector<int32_t>{1});
  write_text_file(folder / "tokenizer.json", "{");
  CHECK(open_folder(folder.path()).status().message().find("tokenizer.json") != std::string_view::npos);
}

TEST_CASE("templates_of_conversations_are_metadata") {
  ScratchFolder folder;
  write_whole(folder);
  write_text_file(
      folder / "tokenizer_config.json",
      R"({"chat_template":[{"name":"default","template":"A"},{"name":"tool_use","template":"B"}]})");
  auto model = open_folder(folder.path());
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  CHECK(model->metadata.at("chat_template") == "A");
  CHECK(model->metadata.at("chat_template.tool_use") == "B");
  write_text_file(folder / "chat_template.jinja", "C");
  write_text_file(folder / "tokenizer_config.json", R"({"chat_template":"A"})");
  model = open_folder(folder.path());
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  CHECK(model->metadata.at("chat_template") == "C");
  write_text_file(folder / "tokenizer_config.json", R"({"chat_template":[1]})");
  CHECK(open_folder(folder.path()).status().code() == StatusCode::kCorrupt);
}

TEST_CASE("shards_are_found_by_their_index_and_by_any_of_them") {
  ScratchFolder folder;
  write_text_file(folder / "config.json", std::string(kConfig));
  write_text_file(folder / "model-00001-of-00002.safetensors", tensors(0, 6).finish());
  write_text_file(folder / "model-00002-of-00002.safetensors", tensors(6, kTensors.size()).finish());
  const auto index = [&](const std::function<std::string(size_t)>& file_of) {
    std::vector<std::string> members;
    for (size_t i = 0; i < kTensors.size(); ++i)
      members.push_back(format("\"{}\":\"{}\"", kTensors[i].name, file_of(i)));
    write_text_file(folder / "model.safetensors.index.json",
                    R"({"metadata":{"total_size":1},"weight_map":{)" + join(members, ",") + "}}");
  };
  const auto shard = [](size_t i) { return format("model-0000{}-of-00002.safetensors", i < 6 ? 1 : 2); };
  index(shard);
  for (const std::string& path : {folder.path(), folder / "model-00002-of-00002.safetensors"}) {
    const auto model = open_folder(path);
    REQUIRE_MESSAGE(model.ok(), model.status().to_string());
    CHECK(floats(*model, "block.0.v") == values_of(6, 8));
    CHECK(floats(*model, "token_embedding") == values_of(0, 20));
  }
  struct Case {
    std::function<std::string(size_t)> file_of;
    std::string_view words;
  };
  const Case cases[] = {
      {[&](size_t i) { return i == 3 ? "../model.safetensors" : shard(i); }, "in its folder"},
      {[&](size_t i) { return i == 3 ? "model.bin" : shard(i); }, "in its folder"},
      {[&](size_t i) { return i == 3 ? "model-00003-of-00002.safetensors" : shard(i); }, "is missing"},
      {[&](size_t i) { return shard(i == 3 ? 9 : i); }, "has not got it"},
  };
  for (const Case& it : cases) {
    index(it.file_of);
    const auto model = open_folder(folder.path());
    CAPTURE(model.status().to_string());
    CHECK(!model.ok());
    CHECK(model.status().message().find(it.words) != std::string_view::npos);
  }
}

TEST_CASE("folders_that_are_no_model_say_why") {
  ScratchFolder folder;
  const auto refused = [&](StatusCode code, std::string_view words) {
    const auto model = open_folder(folder.path());
    CAPTURE(model.status().to_string());
    CHECK(model.status().code() == code);
    CHECK(model.status().message().find(words) != std::string_view::npos);
  };
  refused(StatusCode::kNotFound, "model.safetensors");
  write_text_file(folder / "pytorch_model.bin", "PK");
  refused(StatusCode::kUnsupported, "save them as safetensors");
  write_text_file(folder / "model.safetensors", tensors(0, kTensors.size()).finish());
  refused(StatusCode::kNotFound, "config.json is missing");
  write_whole(folder, R"({"model_type":"mamba"})");
  refused(StatusCode::kUnsupported, "model_type is 'mamba'; known: bert");
  write_whole(folder);
  write_text_file(folder / "model.safetensors", tensors(0, 7).finish());
  refused(StatusCode::kCorrupt, "and 5 more are missing");
  write_text_file(folder / "model.safetensors",
                  tensors(0, kTensors.size())
                      .f32("model.layers.1.mlp.gate_proj.weight", "[1]", values_of(0, 1))
                      .finish());
  refused(StatusCode::kUnsupported, "has no place");
  write_whole(folder,
              R"({"model_type":"mixtral","hidden_size":4,"num_hidden_layers":1,"num_attention_heads":1,)"
              R"("num_key_value_heads":1,"num_local_experts":2000000000,"intermediate_size":2,"vocab_size":5})");
  refused(StatusCode::kCorrupt, "has 2000000000 experts, a tensor each");
  std::string tied(kConfig);
  tied.insert(1, R"("tie_word_embeddings":true,)");
  write_whole(folder, tied);
  const auto model = open_folder(folder.path());  // the file's own head is not read
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  CHECK(!model->parameters.contains("output"));
}

TEST_CASE("sixteen_bits_stay_and_numbers_of_64_are_rounded") {
  ScratchFolder folder;
  write_text_file(
      folder / "config.json",
      R"({"model_type":"llama","hidden_size":2,"num_hidden_layers":1,"num_attention_heads":1,)"
      R"("intermediate_size":1,"vocab_size":1,"max_position_embeddings":4,"tie_word_embeddings":true})");
  SafetensorsWriter w;
  const std::string bf16("\x80\x3f\x00\x40", 4);  // 1, 2
  w.tensor("model.embed_tokens.weight", "BF16", "[1,2]", bf16)
      .tensor("model.norm.weight", "BF16", "[2]", bf16);
  for (const char* const name : {"input_layernorm", "post_attention_layernorm"})
    w.tensor(format("model.layers.0.{}.weight", name), "BF16", "[2]", bf16);
  const double exact[] = {1.0 / 3, 2, 3, 4};
  for (const char* const name : {"q", "k", "v", "o"})
    w.tensor(format("model.layers.0.self_attn.{}_proj.weight", name), "F64", "[2,2]",
             {reinterpret_cast<const char*>(exact), sizeof exact});
  w.tensor("model.layers.0.mlp.gate_proj.weight", "BF16", "[1,2]", bf16);
  w.tensor("model.layers.0.mlp.up_proj.weight", "BF16", "[1,2]", bf16);
  w.tensor("model.layers.0.mlp.down_proj.weight", "BF16", "[2,1]", bf16);
  write_text_file(folder / "model.safetensors", w.finish());
  const auto model = open_folder(folder.path());
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  CHECK(model->parameters.at("block.0.gate").type.dtype == DType::kBF16);
  CHECK(floats(*model, "final_norm") == std::vector<float>{1, 2});
  CHECK(floats(*model, "block.0.q") == std::vector<float>{static_cast<float>(1.0 / 3), 2, 3, 4});
}

TEST_CASE("of_a_model_that_reads_pictures_the_part_that_reads_texts_is_taken") {
  const auto json = parse_json(
      R"({"model_type":"gemma3","eos_token_id":[1,106],"vision_config":{"hidden_size":9},"text_config":)"
      R"({"hidden_size":32,"num_hidden_layers":7,"intermediate_size":20,"sliding_window":5,)"
      R"("rope_scaling":{"factor":8.0,"rope_type":"linear"}}})",
      "config.json");
  REQUIRE(json.ok());
  const auto config = read_huggingface_config(*json);
  REQUIRE_MESSAGE(config.ok(), config.status().to_string());
  CHECK(config->config.family == "gemma3");
  CHECK(config->config.sizes.at("C") == 32);
  CHECK(config->config.lists.at("windows") == std::vector<int64_t>{5, 5, 5, 5, 5, 0, 5});
  CHECK(config->end_ids == std::vector<int32_t>{1, 106});
  CHECK(config->ignored.size() == 4);
  CHECK(config->used.back().first == "vision_config");
}

TEST_CASE("configurations_that_change_the_result_are_obeyed_or_refused_by_name") {
  const auto with = [](std::string_view members) {
    std::string text(kConfig);
    return text.insert(1, std::string(members) + ",");
  };
  CHECK(config_status(kConfig).ok());
  CHECK(config_status(with(R"("use_cache":true,"something_else":{"a":[1]})")).ok());
  struct Case {
    std::string text;
    std::string_view words;
  };
  const Case cases[] = {
      {with(R"("hidden_act":"relu")"), "hidden_act is 'relu'"},
      {with(R"("quantization_config":{"quant_method":"eetq"})"), "quant_method is 'eetq'"},
      {with(R"("rope_scaling":{"rope_type":"spiral"})"), "rope_type is 'spiral'"},
      {with(R"("rope_scaling":{"type":"linear"})"), "factor is missing"},
      {with(R"("rope_scaling":{"type":"linear","factor":0})"), "factor is 0"},
      {with(R"("rope_scaling":[1])"), "rope_scaling is [1], wanted an object"},
      {with(R"("rope_scaling":{"type":"longrope","short_factor":[1,1],"long_factor":[1]})"),
       "short_factor has 2 numbers"},
      {with(R"("rope_theta":-1)"), "rope_theta -1"},
      {with(R"("partial_rotary_factor":7)"), "partial_rotary_factor is 7"},
      {with(R"("layer_types":["full_attention","full_attention"])"), "layer_types has 2 names"},
      {with(R"("layer_types":["linear_attention"])"), "linear_attention"},
      {R"({"model_type":"llama","eos_token_id":"end"})", "eos_token_id is \"end\""},
      {R"({"model_type":"llama","hidden_size":-8})", "hidden_size is -8"},
      {R"({"model_type":"llama","hidden_size":8.5})", "hidden_size is 8.5"},
      {R"({"model_type":"llama","num_hidden_layers":1000000000})", "num_hidden_layers is 1000000000"},
      {R"({"model_type":"olmo3","hidden_size":877777776,"num_attention_heads":3,"rope_scaling":{"type":"yarn","factor":4}})",
       "wanted an even number of at most 65536"},
      {R"({"model_type":"llama","vocab_size":18446744073709551615})", "vocab_size"},
      {R"({"model_type":"llama","rms_norm_eps":1e999})", "is not JSON"},
      {R"({"model_type":"qwen3_moe","decoder_sparse_step":0})", "decoder_sparse_step is 0"},
      {R"({"model_type":"qwen2_moe","mlp_only_layers":["first"]})", "mlp_only_layers"},
      {R"({"model_type":"granite","logits_scaling":0})", "logits_scaling is 0"},
      {R"({"model_type":"gpt_oss","swiglu_alpha":2})", "swiglu_alpha is 2"},
      {R"({"model_type":"deepseek_v2","num_experts_per_tok":2,"topk_method":"best"})",
       "topk_method is 'best'"},
      {R"({"model_type":"deepseek_v2"})", "num_experts_per_tok is missing"},
      {R"({"model_type":"deepseek_v3","scoring_func":"softmax"})", "scoring_func is \"softmax\""},
      {R"({"model_type":"deepseek_v3","qk_rope_head_dim":7})", "7 numbers of a head"},
      {R"({"model_type":"gemma3_text","use_bidirectional_attention":true})",
       "use_bidirectional_attention is true"},
      {R"({"model_type":"gpt2","scale_attn_by_inverse_layer_idx":true})", "scale_attn_by_inverse_layer_idx"},
      {R"({"model_type":"smollm3","no_rope_layers":[1]})", "no_rope_layers has 1 numbers"},
      {R"({"hidden_size":8})", "model_type is missing"},
      {"[]", "wanted an object"},
  };
  for (const Case& it : cases) {
    CAPTURE(it.text);
    const Status status = config_status(it.text);
    CAPTURE(status.to_string());
    CHECK(!status.ok());
    CHECK(status.message().find(it.words) != std::string_view::npos);
  }
}

TEST_CASE("malformed_safetensors_are_refused_with_a_reason") {
  const std::vector<float> four = {1, 2, 3, 4};
  const auto one = [&] { return SafetensorsWriter().f32("a", "[2,2]", four); };
  const std::string data(16, 'x');
  const auto header = [&](std::string_view text) { return SafetensorsWriter::file_of(text, data); };
  std::string huge = one().finish();
  for (size_t i = 0; i < 8; ++i) huge[i] = i == 7 ? '\x7f' : '\xff';
  struct Case {
    std::string file;
    std::string_view words;
  };
  const Case cases[] = {
      {"", "fewer than 8 bytes"},
      {huge, "its header has 9223372036854775807 bytes"},
      {one().finish().substr(0, 20), "its header has"},
      {one().finish().substr(0, 40), "its header has"},
      {one().finish() + "x", "its data have 17 bytes, its tensors 16"},
      {SafetensorsWriter().entry("a", "F32", "[2,2]", 4, 20, data + "1234").finish(),
       "have a hole at byte 0"},
      {one().entry("b", "F32", "[1]", 12, 16, "").finish(), "overlap"},
      {one().entry("b", "F32", "[1]", 16, 20, "").finish(), "is at bytes 16 to 20 of 16"},
      {one().f32("a", "[2,2]", four).finish(), "'a' is there twice"},
      {one().tensor("b", "F31", "[1]", "xxxx").finish(), "dtype 'F31', which is not known"},
      {one().tensor("b", "F64", "[1]", "xxxx").finish(), "has 4 bytes, wanted 8"},
      {one().entry("b", "F32", "[4611686018427387904,4611686018427387904]", 16, 16, "").finish(),
       "more elements than"},
      {one().entry("b", "F32", "[1,1,1,1,1,1,1]", 16, 20, "xxxx").finish(), "shape of 'b' is longer than 6"},
      {one().entry("b", "F32", "[1]", 20, 16, "xxxx").finish(), "bytes 20 to 16"},
      {header(R"({"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})"), "a negative number"},
      {header(R"({"a":{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}})"), "a fraction"},
      {header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16],"more":1}})"), "a field 'more'"},
      {header(R"({"a":{"dtype":"F32","shape":[4],"shape":[4],"data_offsets":[0,16]}})"), "has shape twice"},
      {header(R"({"a":{"dtype":"F32","shape":[4]}})"), "wants dtype, shape and two data_offsets"},
      {header(R"({"a":{"dtype":"F32","shape":[[4]],"data_offsets":[0,16]}})"), "a list"},
      {header(R"({"a":[]})"), "a list"},
      {header(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,NaN]}})"), "is not JSON"},
      {header(R"({"__metadata__":{"a":{}}})"), "an object"},
      {header(R"([])"), "does not begin with"},
      {header("{" + std::string(100000, '[')), "is not JSON"},
  };
  for (const Case& it : cases) {
    CAPTURE(it.file.substr(0, 200));
    const auto begin = std::chrono::steady_clock::now();
    const auto tensors = read_safetensors(*source_of(it.file));
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    CAPTURE(tensors.status().to_string());
    CHECK(!tensors.ok());
    CHECK(tensors.status().message().find(it.words) != std::string_view::npos);
    CHECK(elapsed.count() < 1);
  }
  CHECK(read_safetensors(*source_of(one().raw(R"("__metadata__":{"format":"pt"})").finish())).ok());
  CHECK(read_safetensors(*source_of(one().entry("empty", "F32", "[0,3]", 16, 16, "").finish())).ok());
  CHECK(read_safetensors(*source_of(one().entry("scalar", "U8", "[]", 16, 17, "x").finish())).ok());
}
