// config.json files of families with recurrent layers and sizes by layer that lie, and folders without a vocabulary that can be
// read: each is an error with a reason, at once, and without memory beyond the files' sizes.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "tests/serialize/address_limit.h"
#include "tests/serialize/exported_model.h"
#include "tests/serialize/hostile_descriptions.h"
#include "text/json.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

constexpr StatusCode kCorrupt = StatusCode::kCorrupt, kUnsupported = StatusCode::kUnsupported,
                     kInvalid = StatusCode::kInvalidArgument;

// A change of config.json: each member of `members` takes the place of the file's; null: the file has none.
struct Row {
  const char* members;
  StatusCode code;
  std::string words;
};

Status status_of(const std::string& folder) {
  const AddressLimit limit;
  const auto begin = std::chrono::steady_clock::now();
  const auto source = open_model_file(folder);
  const Status status = source.ok() ? open_model(*source).status() : source.status();
  CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < 1);
  return status;
}

class FolderOf {
 public:
  explicit FolderOf(const std::string& shorthand) {
    write_folder(model_of(shorthand), path_);
    good_ = *parse_json(read_text_file(path_ + "/config.json"), "config.json");
    REQUIRE(status().ok());
  }
  const std::string& path() const { return path_; }
  const Json& config() const { return good_; }
  Status status() const { return status_of(path_); }
  Status status_with(const Json& members) const {
    Json config = good_;
    for (const auto& [key, value] : members.items()) {
      config.erase(key);
      if (!value.is_null()) config[key] = value;
    }
    write_text_file(path_ + "/config.json", config.dump());
    return status();
  }

  void check_rows(const std::vector<Row>& rows) const {
    for (const Row& row : rows) {
      CAPTURE(std::string(row.members));
      check_says(status_with(*parse_json(row.members, "members")), row.code, row.words);
    }
  }

 private:
  ScratchFolder scratch_;
  std::string path_ = scratch_ / "model";
  Json good_;
};

}  // namespace

TEST_CASE(
    "folders of qwen3_5 whose layers, heads or states contradict each other are refused by name and value") {
  FolderOf(kDelta).check_rows(
      {{R"({"layer_types":["linear_attention","linear_attention","full_attention","full_attention"]})",
        kCorrupt, "'model.layers.2.self_attn.q_proj.weight'"},
       {R"({"layer_types":["full_attention"]})", kCorrupt, "layer_types has 1 names, the model has 4 layers"},
       {R"({"layer_types":["linear_attention","linear_attention","mamba","full_attention"]})", kUnsupported,
        "layer_types has 'mamba'; known: full_attention, linear_attention"},
       {R"({"layer_types":null,"full_attention_interval":0})", kCorrupt,
        "full_attention_interval is 0, wanted a whole number from 1 to"},
       {R"({"layer_types":null,"full_attention_interval":2})", kCorrupt,
        "'model.layers.1.self_attn.q_proj.weight'"},
       {R"({"linear_num_key_heads":3})", kInvalid,
        "HS = 4 heads of values are not a multiple of GS = 3 heads of keys"},
       {R"({"num_key_value_heads":2})", kInvalid, "H = 3 query heads is not a multiple of KV = 2"},
       {R"({"linear_num_value_heads":8})", kCorrupt, "the model wants"},
       {R"({"linear_key_head_dim":1152921504606846976})", kCorrupt,
        "linear_key_head_dim is 1152921504606846976, wanted a whole number from "},
       {R"({"linear_value_head_dim":1152921504606846976})", kCorrupt,
        "linear_value_head_dim is 1152921504606846976, wanted a whole number from "},
       {R"({"linear_num_value_heads":1152921504606846976})", kCorrupt,
        "linear_num_value_heads is 1152921504606846976, wanted a whole number from "},
       {R"({"linear_conv_kernel_dim":1152921504606846976})", kCorrupt,
        "linear_conv_kernel_dim is 1152921504606846976, wanted a whole number from "},
       {R"({"linear_conv_kernel_dim":5})", kCorrupt, "the model wants"},
       {R"({"linear_key_head_dim":0})", kCorrupt, "linear_key_head_dim is 0"},
       {R"({"num_hidden_layers":3,"layer_types":["linear_attention","linear_attention","linear_attention"]})",
        kUnsupported, "model.layers.3."}});
}

TEST_CASE(
    "folders of granitemoehybrid whose layers or states contradict each other are refused by name and "
    "value") {
  FolderOf(kStates).check_rows(
      {{R"({"layer_types":["mamba","mamba","mamba"]})", kCorrupt, "'model.layers.1.mamba.in_proj.weight'"},
       {R"({"layer_types":["attention","attention","mamba"]})", kCorrupt,
        "'model.layers.0.self_attn.q_proj.weight'"},
       {R"({"layer_types":["mamba"]})", kCorrupt, "layer_types has 1 names, the model has 3 layers"},
       {R"({"layer_types":["mamba","conv","mamba"]})", kUnsupported,
        "layer_types has 'conv'; known: full_attention"},
       {R"({"layer_types":null,"layers_block_type":null})", kCorrupt,
        "'model.layers.1.mamba.in_proj.weight'"},
       {R"({"mamba_n_groups":3})", kInvalid,
        "HS = 4 heads of values are not a multiple of GS = 3 heads of keys"},
       {R"({"mamba_n_heads":5})", kCorrupt, "5 heads of 6 numbers, wanted 24 numbers in all"},
       {R"({"mamba_d_state":1152921504606846976})", kCorrupt,
        "mamba_d_state is 1152921504606846976, wanted a whole number from "},
       {R"({"mamba_d_conv":1152921504606846976})", kCorrupt,
        "mamba_d_conv is 1152921504606846976, wanted a whole number from "},
       {R"({"mamba_expand":1152921504606846976})", kCorrupt, "mamba_expand is 1152921504606846976"},
       {R"({"mamba_d_head":1152921504606846976})", kCorrupt, "1152921504606846976"},
       {R"({"mamba_d_state":4})", kCorrupt, "the model wants"},
       {R"({"num_key_value_heads":2})", kInvalid, "H = 3 query heads is not a multiple of KV = 2"}});
}

TEST_CASE(
    "folders of nemotron_h whose pattern or states contradict the tensors are refused by name and value") {
  FolderOf(kHalves).check_rows(
      {{R"({"layers_block_type":null,"layer_types":null,"hybrid_override_pattern":"M-M"})", kCorrupt,
        "'backbone.layers.2.mixer.in_proj.weight'"},
       {R"({"layers_block_type":null,"layer_types":null,"hybrid_override_pattern":"M-"})", kUnsupported,
        "'backbone.layers.2."},
       {R"({"layers_block_type":null,"layer_types":null,"hybrid_override_pattern":"M-**"})", kCorrupt,
        "'backbone.layers.3.norm.weight'"},
       {R"({"layers_block_type":null,"layer_types":null,"hybrid_override_pattern":"M-X"})", kUnsupported,
        "layers_block_type has 'X'; known: "},
       {R"({"layers_block_type":null,"layer_types":null,"hybrid_override_pattern":""})", kCorrupt,
        "layers_block_type has 0 layers, wanted 1 to 1024"},
       {R"({"n_groups":3})", kInvalid, "HS = 4 heads of values are not a multiple of GS = 3 heads of keys"},
       {R"({"ssm_state_size":1152921504606846976})", kCorrupt,
        "ssm_state_size is 1152921504606846976, wanted a whole number from "},
       {R"({"mamba_head_dim":1152921504606846976})", kCorrupt,
        "mamba_head_dim is 1152921504606846976, wanted a whole number from "},
       {R"({"conv_kernel":1152921504606846976})", kCorrupt,
        "conv_kernel is 1152921504606846976, wanted a whole number from "},
       {R"({"mamba_num_heads":2})", kCorrupt, "the model wants"},
       {R"({"num_key_value_heads":2})", kInvalid, "H = 3 query heads is not a multiple of KV = 2"}});
}

TEST_CASE(
    "folders of lfm2 whose layers or convolutions contradict the tensors are refused by name and value") {
  FolderOf(kConvolutions)
      .check_rows(
          {{R"({"layer_types":["conv","conv","conv"]})", kCorrupt, "'model.layers.1.conv.in_proj.weight'"},
           {R"({"layer_types":null,"full_attn_idxs":[0]})", kCorrupt,
            "'model.layers.0.self_attn.q_proj.weight'"},
           {R"({"layer_types":["conv","full_attention"]})", kCorrupt,
            "layer_types has 2 names, the model has 3 layers"},
           {R"({"layer_types":["conv","linear_attention","conv"]})", kUnsupported,
            "layer_types has 'linear_attention'; known: full_attention, conv"},
           {R"({"conv_L_cache":0})", kCorrupt, "conv_L_cache is 0"},
           {R"({"conv_L_cache":4})", kCorrupt,
            "tensor 'model.layers.0.conv.conv.weight' is [12, 1, 3], the model wants [12, 4]"},
           {R"({"conv_L_cache":1152921504606846976})", kCorrupt,
            "conv_L_cache is 1152921504606846976, wanted a whole number from "},
           {R"({"num_attention_heads":5})", kCorrupt,
            "tensor 'model.layers.1.self_attn.q_proj.weight' is [12, 12], the model wants [20, 12]"},
           {R"({"num_key_value_heads":2})", kInvalid, "H = 3 query heads is not a multiple of KV = 2"}});
}

TEST_CASE("folders of gemma4 whose sizes by layer contradict each other are refused by name and value") {
  const FolderOf folder(kLayerSizes);
  folder.check_rows(
      {{R"({"layer_types":["sliding_attention","full_attention"]})", kCorrupt,
        "layer_types has 2 names, the model has 4 layers"},
       {R"({"layer_types":["full_attention","sliding_attention","sliding_attention","full_attention"]})",
        kCorrupt, "tensor 'model.layers.0.self_attn.q_proj.weight' is [36, 12], the model wants [48, 12]"},
       {R"({"layer_types":["sliding_attention","sliding_attention","sliding_attention","full_attention"]})",
        kInvalid, "no layer before has keys and values for layer 3"},
       {R"({"layer_types":["sliding_attention","mamba","sliding_attention","full_attention"]})", kUnsupported,
        "layer_types has 'mamba'"},
       {R"({"num_kv_shared_layers":4})", kInvalid,
        "shared_kv = 4 layers read keys of others, wanted fewer than L = 4"},
       {R"({"num_kv_shared_layers":1152921504606846976})", kCorrupt,
        "num_kv_shared_layers is 1152921504606846976, wanted a whole number from "},
       {R"({"hidden_size_per_layer_input":1152921504606846976})", kCorrupt,
        "hidden_size_per_layer_input is 1152921504606846976, wanted a whole number from "},
       {R"({"hidden_size_per_layer_input":5})", kCorrupt, "the model wants"},
       {R"({"hidden_size_per_layer_input":0})", kUnsupported, "has no place"},
       {R"({"vocab_size_per_layer_input":12})", kCorrupt,
        "tensor 'model.embed_tokens_per_layer.weight' is [11, 16], the model wants [12, 16]"},
       {R"({"head_dim":1152921504606846976})", kCorrupt,
        "head_dim is 1152921504606846976, wanted a whole number from "},
       {R"({"global_head_dim":1152921504606846976})", kCorrupt,
        "global_head_dim is 1152921504606846976, wanted a whole number from "},
       {R"({"num_key_value_heads":4})", kInvalid, "H = 6 query heads is not a multiple of KV = 4"}});
  // The table of the layers' numbers is in the file, or the file is none of this configuration.
  std::string bytes = read_text_file(folder.path() + "/model.safetensors");
  const size_t at = bytes.find("embed_tokens_per_layer");
  REQUIRE(at != bytes.npos);
  bytes.replace(at, 5, "other");
  write_text_file(folder.path() + "/model.safetensors", bytes);
  check_says(folder.status_with(Json::object()), kCorrupt,
             "tensor 'model.embed_tokens_per_layer.weight' is missing");
}

TEST_CASE(
    "any value of a family's configuration may be any other, and is an error with a reason or no matter") {
  for (const char* const shorthand : {kDelta, kStates, kHalves, kConvolutions, kLayerSizes}) {
    const FolderOf folder(shorthand);
    for (const auto& [key, value] : folder.config().items())
      for (const char* const other :
           {"0", "-1", "7", "1.5", "1152921504606846976", "18446744073709551615", "1e300", "\"x\"", "[]",
            "[1e300]", "[\"x\",\"x\",\"x\",\"x\"]", "{}", "true"}) {
        CAPTURE(key);
        CAPTURE(std::string(other));
        const Status status = folder.status_with({{key, *parse_json(other, "value")}});
        CAPTURE(status.to_string());
        CHECK(status.code() != StatusCode::kInternal);
        CHECK(status.code() != StatusCode::kOutOfMemory);
        CHECK(status.ok() == status.message().empty());
      }
  }
}

TEST_CASE("a vocabulary whose pattern is in a model's code is refused with the remedy") {
  const FolderOf folder("qwen3:L=1,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,tied,rope_half");
  write_text_file(folder.path() + "/tiktoken.model", "IQ== 0\nIg== 1\n");
  write_text_file(folder.path() + "/tokenizer_config.json",
                  R"({"auto_map":{"AutoTokenizer":["tokenization_kimi.TikTokenTokenizer",null]}})");
  for (const char* const words : {"the folder has tiktoken.model", "wanted tokenizer.json", "save_pretrained",
                                  "GGUF file of the model"})
    check_says(folder.status(), kUnsupported, words);
  // With a vocabulary that is read it says nothing.
  write_text_file(folder.path() + "/tokenizer.json",
                  R"({"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"}})");
  CHECK(folder.status().ok());
}
