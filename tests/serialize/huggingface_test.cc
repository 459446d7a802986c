// Hugging Face folders: what comes out of them, and what is refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "graph/base/text.h"
#include "serialize/import/huggingface_config.h"
#include "serialize/model.h"
#include "serialize/opened_model.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/serialize/safetensors_writer.h"
#include "tests/serialize/test_data.h"
#include "tests/whole_model.h"

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
}

TEST_CASE("a_stored_head_counts_where_it_differs_from_the_embedding_that_it_is_said_to_be") {
  ScratchFolder folder;
  std::string tied(kConfig);
  tied.insert(1, R"("tie_word_embeddings":true,)");
  write_whole(folder, tied);
  const auto own = open_folder(folder.path());
  REQUIRE_MESSAGE(own.ok(), own.status().to_string());
  CHECK(floats(*own, "output") == values_of(2, 20));
  CHECK(own->metadata.at("description").find("tied=0") != std::string::npos);
  const auto note = std::ranges::find(own->origin.used, "tie_word_embeddings", &std::pair<std::string, std::string>::first);
  REQUIRE(note != own->origin.used.end());
  CHECK(note->second.find("lm_head.weight differs from the embedding") != std::string::npos);
  // Saved twice, it is one parameter.
  const auto with_tables = [&](bool embedding, bool head) {
    SafetensorsWriter writer;
    for (size_t i = 0; i < kTensors.size(); ++i)
      if ((i != 0 || embedding) && (i != 2 || head))
        writer.f32(kTensors[i].name, kTensors[i].shape,
                   values_of(i == 2 ? 0 : static_cast<int64_t>(i), kTensors[i].count));
    write_text_file(folder / "model.safetensors", writer.finish());
    return open_folder(folder.path());
  };
  for (const auto& [embedding, head] : {std::pair{true, true}, {true, false}, {false, true}}) {
    CAPTURE(embedding);
    CAPTURE(head);
    const auto model = with_tables(embedding, head);
    REQUIRE_MESSAGE(model.ok(), model.status().to_string());
    CHECK(!model->parameters.contains("output"));
    CHECK(floats(*model, "token_embedding") == values_of(0, 20));
  }
}

TEST_CASE("a_whole_file_counts_before_an_index_and_a_file_that_is_named_before_both") {
  ScratchFolder folder;
  write_whole(folder);
  const auto index = [&](std::string_view text) {
    write_text_file(folder / "model.safetensors.index.json", std::string(text));
  };
  index("{");  // not even read
  auto model = open_folder(folder.path());
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  CHECK(model->origin.files == 1);
  CHECK(model->origin.unread == std::vector<std::string>{"model.safetensors.index.json"});
  SafetensorsWriter shard;
  std::vector<std::string> members;
  for (size_t i = 0; i < kTensors.size(); ++i) {
    shard.f32(kTensors[i].name, kTensors[i].shape, values_of(static_cast<int64_t>(i) + 100, kTensors[i].count));
    members.push_back(format("\"{}\":\"model-00001-of-00001.safetensors\"", kTensors[i].name));
  }
  write_text_file(folder / "model-00001-of-00001.safetensors", shard.finish());
  write_text_file(folder / "other.safetensors", shard.finish());
  index(R"({"weight_map":{)" + join(members, ",") + "}}");
  CHECK(floats(*open_folder(folder.path()), "token_embedding") == values_of(0, 20));
  CHECK(floats(*open_folder(folder / "model.safetensors"), "token_embedding") == values_of(0, 20));
  for (const char* const named : {"model-00001-of-00001.safetensors", "other.safetensors"}) {
    model = open_folder(folder / named);
    REQUIRE_MESSAGE(model.ok(), model.status().to_string());
    CHECK(floats(*model, "token_embedding") == values_of(100, 20));
    CHECK(model->origin.unread.back() == "model.safetensors");
  }
}

TEST_CASE("a_decoder_is_read_under_the_prefix_of_any_class_that_saved_it") {
  ScratchFolder folder;
  const auto saved_as = [&](std::string_view architecture, std::string_view prefix, std::string_view head) {
    std::string config(kConfig);
    config.insert(1, format("\"architectures\":[\"{}\"],", architecture));
    write_text_file(folder / "config.json", config);
    SafetensorsWriter writer;
    for (size_t i = 0; i < kTensors.size(); ++i) {
      if (i == 2 && head.empty()) continue;
      const std::string name = i == 2 ? std::string(head) : std::string(prefix) + kTensors[i].name.substr(6);
      writer.f32(name, kTensors[i].shape, values_of(static_cast<int64_t>(i), kTensors[i].count));
    }
    write_text_file(folder / "model.safetensors", writer.finish());
    return open_folder(folder.path());
  };
  struct Case {
    std::string_view architecture, prefix, head;
  };
  const Case with_head[] = {{"Qwen2ForCausalLM", "model.", "lm_head.weight"},
                            {"Qwen2ForCausalLM", "", "lm_head.weight"},
                            {"Qwen2ForConditionalGeneration", "language_model.model.", "language_model.lm_head.weight"},
                            {"Qwen2ForConditionalGeneration", "model.language_model.", "lm_head.weight"},
                            {"Qwen2ForCausalLM", "module.model.", "module.lm_head.weight"}};
  for (const Case& it : with_head) {
    CAPTURE(it.prefix);
    const auto model = saved_as(it.architecture, it.prefix, it.head);
    REQUIRE_MESSAGE(model.ok(), model.status().to_string());
    CHECK(floats(*model, "block.0.v") == values_of(6, 8));
    CHECK(floats(*model, "output") == values_of(2, 20));
  }
  // Without a head it computes hidden states.
  for (const char* const architecture : {"Qwen2Model", "Qwen2ForCausalLM"})
    for (const char* const prefix : {"", "model."}) {
      const auto model = saved_as(architecture, prefix, "");
      REQUIRE_MESSAGE(model.ok(), model.status().to_string());
      CHECK(model->graph.find_output("hidden"));
      CHECK(!model->graph.find_output("logits"));
      CHECK(model->metadata.at("description").find("head=0") != std::string::npos);
    }
  const auto refused = saved_as("Qwen2ForTokenClassification", "model.", "");
  CHECK(refused.status().message().find("architectures has 'Qwen2ForTokenClassification'") != std::string::npos);
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
  CHECK(std::ranges::find(config->ignored, "model.vision_tower.") != config->ignored.end());
  CHECK(config->used.back().first == "vision_config");
}

TEST_CASE("a text_config names the class of the text part, and the whole model says whether its head is tied") {
  const auto read = [](const std::string& text) {
    const auto json = parse_json(text, "config.json");
    REQUIRE(json.ok());
    return read_huggingface_config(*json);
  };
  const auto mistral = read(R"({"model_type":"mistral3","tie_word_embeddings":false,"vision_config":{},)"
                            R"("text_config":{"model_type":"ministral3","tie_word_embeddings":true,"num_hidden_layers":3}})");
  REQUIRE_MESSAGE(mistral.ok(), mistral.status().to_string());
  CHECK(mistral->config.family == "ministral3");
  CHECK(mistral->config.reals.at("query_beta") == 0.1);
  CHECK(mistral->config.sizes.at("query_context") == 16384);
  CHECK(!mistral->config.flags.at("tied"));
  const auto other = read(R"({"model_type":"of_tomorrow","text_config":{"model_type":"qwen3_vl_text"}})");
  REQUIRE_MESSAGE(other.ok(), other.status().to_string());
  CHECK(other->config.family == "qwen3");
  CHECK(other->config.flags.at("tied"));  // the head in the file, if any, counts
  CHECK(read(R"({"model_type":"mistral3","text_config":{"model_type":"of_tomorrow"}})").status().message().find(
            "text_config of a mistral3: config.json: model_type is 'of_tomorrow'; known: ") != std::string::npos);
  CHECK(read(R"({"model_type":"a","text_config":{"model_type":"b","text_config":{}}})").status().message().find(
            "text_config has a text_config") != std::string::npos);
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
      {R"({"model_type":"phi3","partial_rotary_factor":7})", "partial_rotary_factor is 7"},
      {with(R"("partial_rotary_factor":0.5,"rope_scaling":{"type":"linear","factor":2})"),
       "the class of qwen2 rotates whole heads"},
      {with(R"("rope_scaling":{"type":"dynamic"})"), "factor is missing"},
      {R"({"model_type":"phi3","rope_scaling":{"type":"linear","factor":2}})", "the class of phi3 knows default"},
      {R"({"model_type":"gemma3_text","rope_scaling":{"type":"linear","factor":2}})", "reads rope_type there"},
      {R"({"model_type":"mistral","sliding_window":9,"layer_types":["full_attention"]})", "one kind of layers"},
      {with(R"("rope_scaling":{"type":"yarn"})"), "factor is missing"},
      {with(R"("rope_parameters":{"full_attention":{"rope_theta":5}})"), "the class of qwen2 has one rotation"},
      {R"({"model_type":"gemma3_text","rope_parameters":{"rope_theta":5.0}})",
       "rope_parameters has 'rope_theta' outside full_attention and sliding_attention"},
      {R"({"model_type":"modernbert","rope_parameters":{"rope_theta":5.0}})", "rope_parameters has 'rope_theta'"},
      {with(R"("layer_types":["full_attention","full_attention"])"), "layer_types has 2 names"},
      {with(R"("layer_types":["linear_attention"])"), "linear_attention"},
      {R"({"model_type":"llama","eos_token_id":"end"})", "eos_token_id is \"end\""},
      {R"({"model_type":"llama","hidden_size":-8})", "hidden_size is -8"},
      {R"({"model_type":"llama","hidden_size":8.5})", "hidden_size is 8.5"},
      {R"({"model_type":"llama","num_hidden_layers":1000000000})", "num_hidden_layers is 1000000000"},
      {R"({"model_type":"olmo3","hidden_size":877777776,"num_attention_heads":3,"rope_scaling":{"rope_type":"yarn","factor":4}})",
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
      {R"({"model_type":"glm4_moe_lite","mlp_layer_types":["dense"]})", "mlp_layer_types has 1 names, the model has 47 layers"},
      {R"({"model_type":"glm4_moe_lite","num_hidden_layers":2,"mlp_layer_types":["dense","thin"]})", "mlp_layer_types has 'thin'; known"},
      {R"({"model_type":"kimi_k2","scoring_func":"softmax"})", "scoring_func is \"softmax\""},
      {R"({"model_type":"gemma2","use_bidirectional_attention":true})",
       "use_bidirectional_attention is true"},
      {R"({"model_type":"gemma4_text","use_bidirectional_attention":"some"})", "use_bidirectional_attention is 'some'; known: all"},
      {R"({"model_type":"gemma4_text","per_layer_config":{"1":{"sliding_window":5}}})", "per_layer_config 1: sliding_window is 5; known"},
      {R"({"model_type":"gemma4_text","per_layer_config":{"99":{}}})", "per_layer_config has '99', wanted numbers below 30"},
      {R"({"model_type":"gemma4_text","enable_moe_block":true})", "num_experts is missing"},
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

TEST_CASE("keys_are_obeyed_where_the_class_of_the_model_reads_them") {
  const auto shorthand = [](std::string_view text) {
    const auto json = parse_json(text, "config.json");
    REQUIRE(json.ok());
    const auto config = read_huggingface_config(*json);
    REQUIRE_MESSAGE(config.ok(), config.status().to_string());
    return to_text(config->config) + ",";
  };
  struct Case {
    std::string_view config, has, has_not;
  };
  const Case cases[] = {
      {R"({"model_type":"llama","is_causal":false})", "causal=0", "window"},
      {R"({"model_type":"mistral","is_causal":false,"sliding_window":9})", "window=10,", "causal=1"},
      {R"({"model_type":"gpt2","is_causal":false})", "causal=0", "causal=1"},
      {R"({"model_type":"gemma3_text","use_bidirectional_attention":true,"sliding_window":8,"num_hidden_layers":2})",
       "windows=5|5,", "causal=1"},
      {R"({"model_type":"gemma3_text","attn_logit_softcapping":5})", "gemma3:", ",softcap="},
      {R"({"model_type":"gemma4_text","num_hidden_layers":3,"layer_types":["full_attention","sliding_attention","sliding_attention"]})",
       "head_sizes=512|256|512,windows=0|512|0,", "key_values"},
      {R"({"model_type":"gemma4_text","num_hidden_layers":6,"attention_k_eq_v":true,"num_global_key_value_heads":2})",
       "key_values=0|0|0|0|0|1,kv_heads=4|4|4|4|4|2,", "shared_kv"},
      {R"({"model_type":"gemma4_text","num_hidden_layers":6,"num_global_key_value_heads":2})", "P=256,", "kv_heads"},
      {R"({"model_type":"gemma4_text","num_hidden_layers":6,"layer_types":["sliding_attention","full_attention","sliding_attention",)"
       R"("full_attention","sliding_attention","full_attention"],"num_kv_shared_layers":2,"use_double_wide_mlp":true})",
       "ffn_widths=9216|9216|9216|9216|18432|18432,", "kv_heads"},
      {R"({"model_type":"gemma4_text","num_hidden_layers":6,"per_layer_config":{"5":{"head_dim":128}}})",
       "head_sizes=256|256|256|256|256|128,", "kv_heads"},
      {R"({"model_type":"gemma4_text","use_bidirectional_attention":"vision"})", "rope_rows=1", "causal"},
      {R"({"model_type":"gemma4_text","num_hidden_layers":2,"use_bidirectional_attention":"all","sliding_window":8})", "windows=5|0,", "causal=1"},
      {R"({"model_type":"gemma4_unified","text_config":{}})", "T=262144,", "P="},
      {R"({"model_type":"gemma2","attn_logit_softcapping":5})", ",softcap=5,", "causal"},
      {R"({"model_type":"llama","partial_rotary_factor":0.5})", "D=128,", ",R="},
      {R"({"model_type":"phi3","partial_rotary_factor":0.5})", ",R=48,", "causal"},
      {R"({"model_type":"llama","rope_scaling":{},"rope_parameters":{"rope_theta":5}})", "rope_theta=5,", "rope_rows"},
      {R"({"model_type":"llama","rope_theta":7,"rope_parameters":{}})", "rope_theta=7,", "rope_rows"},
      {R"({"model_type":"llama","rope_scaling":{"factor":4}})", "rope_theta=10000,", "rope_rows"},
      {R"({"model_type":"gpt_oss"})", "rope_rows=1", "rope_rows=2"},
      {R"({"model_type":"gpt_oss","rope_parameters":{}})", "gpt-oss:", "rope_rows"},
      {R"({"model_type":"olmo3","rope_theta":7})", "rope_theta=7,window_theta=5", "rope_rows"},
      // The trained length is not all that scaling makes room for.
      {R"({"model_type":"qwen2","max_position_embeddings":64,"rope_scaling":{"type":"yarn","factor":4}})", ",T=256,",
       "T=64,"},
      {R"({"model_type":"qwen2","max_position_embeddings":512,"rope_scaling":{"type":"yarn","factor":4,)"
       R"("original_max_position_embeddings":64}})",
       ",T=512,", "T=64,"},
  };
  for (const Case& it : cases) {
    CAPTURE(it.config);
    const std::string text = shorthand(it.config);
    CAPTURE(text);
    CHECK(text.find(it.has) != std::string::npos);
    CHECK(text.find(it.has_not) == std::string::npos);
  }
}
