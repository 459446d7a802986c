// Exports: what Hugging Face folders and GGUF files of every family are read as again, and what is refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <span>

#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "graph/transform/adapters.h"
#include "serialize/export/gguf_export.h"
#include "serialize/export/huggingface_export.h"
#include "serialize/import/gguf_file.h"
#include "serialize/model.h"
#include "serialize/opened_model.h"
#include "serialize/quantization.h"
#include "tests/serialize/exported_model.h"
#include "tests/serialize/test_data.h"
#include "text/json.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

// Each family in its forms; sizes are small and unlike each other.
const std::vector<std::string> kModels = {
    "llama:L=2,C=12,H=6,KV=2,D=4,F=10,V=11,T=16",
    "llama:L=2,C=12,H=3,F=10,V=11,T=16,tied,rope_half",
    "llama:L=1,C=12,H=3,F=10,V=11,T=16,rope_half,qkv_bias,o_bias,mlp_bias",
    "llama:L=1,C=12,H=3,F=10,V=11,T=16,rope_half,window=5",
    "llama:L=1,C=12,H=3,F=10,V=11,T=16,rope_half,rope_rows=1",
    "moe:L=2,C=12,H=3,F=10,E=3,K=2,V=11,T=16,rope_half,capacity=0",
    "qwen2:L=2,C=12,H=3,KV=1,F=10,V=11,T=16,tied,rope_half",
    "qwen3:L=2,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,rope_half",
    "qwen3moe:L=2,C=12,H=3,KV=1,D=6,F=10,E=3,K=2,V=11,T=16,rope_half",
    "gemma2:L=3,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,window=5,tied,rope_half,softcap=50,logit_softcap=30",
    "gemma3:L=7,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,window=5,tied,rope_half",
    "gemma4:L=4,C=12,H=6,KV=2,D=6,F=10,V=11,T=16,windows=5|0|5|0,head_sizes=6|8|6|8,ffn_widths=10|10|20|20,shared_kv=2,P=4,tied,"
    "rope_half,rope_rows=1",
    "gemma4:L=2,C=12,H=6,KV=3,D=6,F=10,V=11,T=16,windows=5|0,head_sizes=6|8,kv_heads=3|2,key_values=0|1,logit_softcap=15,tied,rope_half",
    "gemma4:L=2,C=12,H=6,KV=2,D=6,F=10,V=11,T=16,windows=5|0,head_sizes=6|8,E=3,K=2,FD=14,tied,rope_half",
    "phi3:L=2,C=12,H=3,KV=1,F=10,V=11,T=16,rope_half",
    "phi3:L=1,C=12,H=3,F=10,V=11,T=16,rope_half,rope_rows=2,rope_switch=8,rope_magnitude=1.25",
    "ministral3:L=2,C=12,H=3,KV=1,F=10,V=11,T=16,query_beta=0.25,query_context=4,rope_half",
    "nemotron_h:L=3,C=12,H=3,KV=1,D=4,F=10,HS=4,GS=2,VS=6,KS=3,V=11,T=16,halves=1|2|1,recurrent=1|0|0,conv_bias,rope_half",
    "nemotron_h:L=3,C=12,H=3,KV=1,D=4,F=10,FD=10,E=4,K=2,FS=8,M=6,HS=4,GS=2,VS=6,KS=3,V=11,T=16,halves=1|2|1,recurrent=1|0|0,"
    "expert_layers=0|1|0,conv_bias,rope_half,expert_scale=1.5",
    "nemotron_h:L=4,C=12,H=3,KV=1,D=4,F=10,FD=14,E=4,K=2,FS=8,M=6,HS=4,GS=2,VS=6,KS=3,V=11,T=16,halves=2|1|2|1,recurrent=0|1|0|0,"
    "expert_layers=1|0|0|0,conv_bias,rope_half",
    "nemotron_h:L=4,C=12,H=3,KV=1,D=4,F=10,FD=10,E=4,K=2,FS=8,M=6,HS=4,GS=2,VS=6,KS=3,V=11,T=16,halves=2|1|2|1,recurrent=0|1|0|0,"
    "expert_layers=0|0|1|0,conv_bias,rope_half",
    "lfm2:L=3,C=12,H=3,KV=1,F=10,V=11,T=16,recurrent=1|0|1,tied,rope_half",
    "lfm2moe:L=3,C=12,H=3,KV=1,F=10,FD=14,E=4,K=2,V=11,T=16,recurrent=1|0|1,expert_layers=0|1|1,tied,rope_half",
    "qwen3_5:L=4,C=12,H=3,KV=1,D=8,R=4,F=10,HS=4,GS=2,VS=6,KS=3,V=11,T=16,tied,rope_half",
    "qwen3_5:L=4,C=12,H=3,KV=1,D=8,R=4,F=10,HS=4,GS=2,VS=6,KS=3,V=11,T=16,tied,rope_half,MTP=1",
    "qwen3_5moe:L=2,C=12,H=3,KV=1,D=4,F=10,E=3,K=2,FS=8,HS=6,GS=2,VS=3,KS=3,V=11,T=16,attention_every=2,rope_half",
    "qwen3_5moe:L=2,C=12,H=3,KV=1,D=4,F=10,E=3,K=2,FS=8,HS=6,GS=2,VS=3,KS=3,V=11,T=16,attention_every=2,rope_half,MTP=1,draft_tables",
    "qwen3next:L=2,C=12,H=3,KV=1,D=4,F=10,E=3,K=2,FS=8,HS=4,GS=2,VS=3,KS=5,V=11,T=16,attention_every=2,rope_half,MTP=1",
    "qwen3next:L=2,C=12,H=3,KV=1,D=4,F=10,E=3,K=2,FS=8,HS=4,GS=2,VS=3,KS=5,V=11,T=16,attention_every=2,rope_half",
    "qwen3next:L=3,C=12,H=3,KV=1,D=4,F=10,FD=14,E=3,K=2,FS=8,HS=4,GS=2,VS=3,KS=5,V=11,T=16,attention_every=2,rope_half,expert_layers=0|1|0",
    "granitehybrid:L=3,C=12,H=3,KV=1,F=10,HS=4,GS=2,VS=6,KS=3,V=11,T=16,recurrent=1|0|1,rope_layers=0|0|0,conv_bias,rope_half,"
    "attention_scale=0.5",
    "granitehybridmoe:L=2,C=12,H=3,KV=1,F=10,E=3,K=2,FS=8,HS=4,GS=1,VS=6,KS=3,V=11,T=16,recurrent=1|0,conv_bias,rope_half",
    "smollm3:L=4,C=12,H=3,KV=1,F=10,V=11,T=16,tied,rope_half,rope_layers=1|1|1|0",
    "gemma:L=2,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,tied,rope_half",
    "olmo2:L=4,C=12,H=3,KV=1,F=10,V=11,T=16,rope_half,windows=5|5|5|0,window_theta=10000",
    "olmo2:L=1,C=12,H=3,F=10,V=11,T=16,rope_half",
    "granite:L=1,C=12,H=3,KV=1,F=10,V=11,T=16,rope_half,embedding_scale=3,residual_scale=0.5,logit_scale=0."
    "25,"
    "attention_scale=0.5,qkv_bias,o_bias,mlp_bias",
    "seed_oss:L=2,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,rope_half,qkv_bias",
    "qwen2moe:L=2,C=12,H=3,F=10,E=3,K=2,FS=8,V=11,T=16,rope_half",
    "gpt-oss:L=2,C=12,H=3,KV=1,D=6,F=10,E=3,K=2,V=11,T=16,rope_half,window=5",
    "deepseek2:L=2,C=12,H=3,D=10,R=4,KA=12,QA=6,VD=8,F=10,FD=14,E=4,K=2,FS=20,V=11,T=16,norm_eps=1e-6,"
    "expert_layers=0|1",
    "deepseek2:L=3,C=12,H=3,D=10,R=4,KA=12,QA=6,VD=8,F=10,FD=14,E=4,K=2,FS=10,V=11,T=16,expert_layers=0|1|1,expert_sigmoid",
    "deepseek2:L=1,C=12,H=3,D=10,R=4,KA=12,QA=6,F=10,FD=10,norm_eps=1e-6,E=4,K=2,FS=10,V=11,T=16,expert_"
    "sigmoid,groups=2,"
    "groups_used=1,expert_scale=1.5,normalize",
    "deepseek2:L=2,C=12,H=3,D=10,R=4,KA=12,QA=6,VD=8,F=10,FD=14,E=4,K=2,FS=10,V=11,T=16,expert_layers=0|1,expert_sigmoid,MTP=1",
    "deepseek2:L=2,C=12,H=3,D=10,R=4,KA=12,QA=6,VD=8,F=10,FD=14,E=4,K=2,FS=10,V=11,T=16,expert_sigmoid,MTP=1,draft_tables",
    "gpt2:L=2,C=12,H=3,V=11,T=16",
    "gpt2:L=1,C=12,H=3,F=20,V=11,T=16,tied=0",
};

// Contents by name.
std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files[entry.path().filename().string()] = read_text_file(entry.path().string());
  return files;
}

bool has_half_rotation(const OpenedModel& model) {
  const std::string& text = model.model.metadata.at("description");
  return text.find("rope_half=1") != text.npos;
}

Status huggingface_status(OpenedModel model, const HuggingfaceExportSettings& settings = {}) {
  return huggingface_contents(model, settings).status();
}
Status gguf_status(OpenedModel model) { return gguf_contents(model, {}).status(); }

}  // namespace

TEST_CASE("every family with names elsewhere has a model among these") {
  for (const ModelFamily& family : all_model_families()) {
    if (family.huggingface.empty()) continue;
    CAPTURE(family.name);
    if (family.encoder != nullptr) continue;  // encoder_files_test.cc
    CHECK(std::ranges::any_of(kModels, [&](const std::string& model) {
      return model.starts_with(std::string(family.name) + ":");
    }));
  }
}

TEST_CASE("a hugging face folder of every family is read as the model that it was, bit for bit") {
  const ScratchFolder scratch;
  for (size_t i = 0; i < kModels.size(); ++i) {
    CAPTURE(kModels[i]);
    const OpenedModel before = model_of(kModels[i]);
    const std::string first = scratch / format("{}", i), second = scratch / format("{}-again", i);
    write_folder(before, first);
    const OpenedModel after = opened(first);
    CHECK(after.model.metadata.at("architecture") == before.model.metadata.at("architecture"));
    if (has_half_rotation(before) || kModels[i].starts_with("gpt2"))
      CHECK(values_of(after) == values_of(before));
    write_folder(after, second);
    CHECK(files_of(first) == files_of(second));
  }
}

TEST_CASE("a gguf file of every family is read as the model that it was, bit for bit") {
  const ScratchFolder scratch;
  for (size_t i = 0; i < kModels.size(); ++i) {
    CAPTURE(kModels[i]);
    const OpenedModel before = model_of(kModels[i]);
    const std::string first = scratch / format("{}.gguf", i), second = scratch / format("{}-again.gguf", i);
    write_gguf(before, first);
    const OpenedModel after = opened(first);
    CHECK(after.model.metadata.at("name") == "small");
    CHECK(find_model_family(after.model.metadata.at("architecture")) != nullptr);
    const bool is_turned = after.model.metadata.at("description").find("turned=1") != std::string::npos;  // heads in another order
    if (has_half_rotation(before) == has_half_rotation(after) && !is_turned) CHECK(values_of(after) == values_of(before));
    // Back again through the other order of rotated rows.
    const std::string folder = scratch / format("{}-hf", i), direct = scratch / format("{}-direct", i);
    write_folder(after, folder);
    write_folder(before, direct);
    CHECK(files_of(folder).at("model.safetensors") == files_of(direct).at("model.safetensors"));
    write_gguf(after, second);
    CHECK(read_text_file(first) == read_text_file(second));
  }
}

TEST_CASE("rows of interleaved rotations are those of halves in a hugging face folder") {
  const ScratchFolder scratch;
  const OpenedModel before = model_of(kModels[0]);  // D = 4, 6 heads
  write_folder(before, scratch / "hf");
  const auto old_values = values_of(before), new_values = values_of(opened(scratch / "hf"));
  constexpr size_t kWidth = 12;
  for (const auto& [name, heads] : {std::pair("block.1.q", size_t{6}), std::pair("block.0.k", size_t{2})})
    for (size_t head = 0; head < heads; ++head)
      for (size_t row = 0; row < 4; ++row) {
        constexpr size_t kFrom[] = {0, 2, 1, 3};
        for (size_t column = 0; column < kWidth; ++column)
          CHECK(new_values.at(name)[(head * 4 + row) * kWidth + column] ==
                old_values.at(name)[(head * 4 + kFrom[row]) * kWidth + column]);
      }
  CHECK(new_values.at("block.1.v") == old_values.at("block.1.v"));
}

TEST_CASE("types: as they are, in bf16 where that holds them, or all in one") {
  const ScratchFolder scratch;
  const auto types_of = [&](const std::string& folder) {
    std::set<std::string> types;
    for (const StoredTensors& stored : opened(folder).model.origin.stored) types.insert(stored.type);
    return types;
  };
  const auto config_of = [&](const std::string& folder) {
    return Json::parse(read_text_file(folder + "/config.json"));
  };
  const OpenedModel model = model_of(kModels[9]);  // norms are stored less one
  write_folder(model, scratch / "f32");
  CHECK(types_of(scratch / "f32") == std::set<std::string>{"f32"});
  CHECK(config_of(scratch / "f32")["torch_dtype"] == "float32");
  write_folder(model, scratch / "bf16", {.type = DType::kBF16});
  CHECK(types_of(scratch / "bf16") == std::set<std::string>{"bf16"});
  CHECK(config_of(scratch / "bf16")["torch_dtype"] == "bfloat16");
  // Read and written again, the norms that became f32 are bf16 again.
  write_folder(opened(scratch / "bf16"), scratch / "again");
  CHECK(files_of(scratch / "bf16") == files_of(scratch / "again"));
  // A norm that bf16 does not hold stays f32, and so transformers computes in f32.
  OpenedModel fine = opened(scratch / "bf16");
  for (TensorSource& parameter : fine.parameters)
    if (parameter.name == "final_norm")
      parameter = source_in_memory(
          "final_norm", HostTensor::copy_of<float>(parameter.type, std::vector<float>(12, 1.0f + 1.0f / 3)));
  write_folder(std::move(fine), scratch / "fine");
  CHECK(types_of(scratch / "fine") == std::set<std::string>{"bf16", "f32"});
  CHECK(config_of(scratch / "fine")["torch_dtype"] == "float32");
}

TEST_CASE("shards have at most so many bytes, and an index") {
  const ScratchFolder scratch;
  const OpenedModel model = model_of(kModels[5]);
  write_folder(model, scratch / "whole");
  write_folder(model, scratch / "shards", {.shard_bytes = 1000});
  const auto files = files_of(scratch / "shards");
  CHECK(!files.contains("model.safetensors"));
  const Json index = Json::parse(files.at("model.safetensors.index.json"));
  std::set<std::string> shards, named;
  for (const auto& [name, text] : files)
    if (name.ends_with(".safetensors")) shards.insert(name);
  for (const auto& [tensor, shard] : index["weight_map"].items()) named.insert(shard.get<std::string>());
  CHECK(shards.size() > 3);
  CHECK(shards == named);
  CHECK(shards.begin()->starts_with("model-00001-of-000"));
  CHECK(values_of(opened(scratch / "shards")) == values_of(opened(scratch / "whole")));
}

TEST_CASE("blocks stay in gguf files and are f16 in hugging face folders") {
  const ScratchFolder scratch;
  OpenedModel model = model_of("llama:L=1,C=64,H=2,F=64,V=32,T=16");
  auto quantization = Quantization::create(model.model, {.mix = {.type = "q8_0", .pure = true}});
  REQUIRE(quantization.ok());
  for (TensorSource& parameter : model.parameters) parameter = quantization->encode(std::move(parameter));
  model.model.graph = quantization->graph();
  write_gguf(std::move(model), scratch / "a.gguf");
  const OpenedModel blocks = opened(scratch / "a.gguf");
  for (const TensorSource& parameter : blocks.parameters)
    CHECK(parameter.type.dtype == (parameter.type.shape.rank() == 2 ? DType::kQ8_0 : DType::kF32));
  write_gguf(blocks, scratch / "b.gguf");
  CHECK(read_text_file(scratch / "a.gguf") == read_text_file(scratch / "b.gguf"));
  write_folder(blocks, scratch / "hf");
  for (const TensorSource& parameter : opened(scratch / "hf").parameters)
    if (parameter.type.shape.rank() == 2) CHECK(parameter.type.dtype == DType::kF16);
}

TEST_CASE("scaled rotations keep their words, or are written as factors") {
  const ScratchFolder scratch;
  write_folder(model_of("llama:L=1,C=12,H=3,F=10,V=11,T=64,rope_half"), scratch / "plain");
  Json config = Json::parse(read_text_file(scratch / "plain/config.json"));
  const auto with = [&](const char* name, const Json& scaling) {
    const std::string folder = scratch / name;
    std::filesystem::create_directory(folder);
    std::filesystem::copy_file(scratch / "plain/model.safetensors", folder + "/model.safetensors");
    config["rope_scaling"] = scaling;
    write_text_file(folder + "/config.json", dump(config));
    return opened(folder);
  };
  const auto written = [&](const OpenedModel& model, const std::string& name) {
    write_folder(model, scratch / name);
    return Json::parse(read_text_file(scratch / (name + "/config.json")))["rope_scaling"];
  };
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 32}};
  CHECK(written(with("llama3", llama3), "llama3-again") == llama3);
  const Json linear = {{"rope_type", "linear"}, {"factor", 2.5}};
  CHECK(written(with("linear", linear), "linear-again") == linear);
  const Json yarn = {{"rope_type", "yarn"},
                     {"factor", 4.0},
                     {"original_max_position_embeddings", 32},
                     {"beta_fast", 32.0},
                     {"beta_slow", 1.0}};
  const OpenedModel yarned = with("yarn", yarn);
  CHECK(written(yarned, "yarn-again") == yarn);
  // Through GGUF: yarn's keys, and llama3's factors as a tensor.
  write_gguf(yarned, scratch / "yarn.gguf");
  CHECK(written(opened(scratch / "yarn.gguf"), "yarn-gguf") == yarn);
  write_gguf(opened(scratch / "llama3"), scratch / "llama3.gguf");
  const OpenedModel factors = opened(scratch / "llama3.gguf");
  CHECK(values_of(factors).at("rope_factors") == values_of(opened(scratch / "llama3")).at("rope_factors"));
  CHECK(written(factors, "llama3-gguf")["rope_type"] == "longrope");
  CHECK(values_of(opened(scratch / "llama3-gguf")).at("rope_factors") ==
        values_of(factors).at("rope_factors"));
}

TEST_CASE("magnitudes of yarn's rotations go through GGUF, of plain and of latent attention") {
  constexpr const char* kModels[] = {
      "llama:L=1,C=12,H=3,F=10,V=11,T=128,rope_half",
      "deepseek2:L=1,C=12,H=3,D=10,R=4,KA=12,QA=6,F=10,FD=10,norm_eps=1e-6,E=4,K=2,FS=10,V=11,T=128,expert_sigmoid"};
  struct Multipliers {
    double mscale, all;
  };
  constexpr Multipliers kMultipliers[] = {{1, 0.6}, {0.5, 1}, {0.7, 0.7}, {1, 1}, {0, 0}};
  const ScratchFolder scratch;
  const auto magnitude_of = [](const OpenedModel& model) {
    const auto config = parse_shorthand(model.model.metadata.at("description"));
    REQUIRE(config.ok());
    const auto found = config->reals.find("rope_magnitude");
    return found == config->reals.end() ? 1.0 : found->second;
  };
  int number = 0;
  for (const char* model : kModels)
    for (const auto& [mscale, all] : kMultipliers) {
      CAPTURE(model);
      CAPTURE(mscale);
      CAPTURE(all);
      const std::string folder = scratch / std::to_string(++number);
      write_folder(model_of(model), folder);
      Json config = Json::parse(read_text_file(folder + "/config.json"));
      config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}, {"beta_fast", 32.0}, {"beta_slow", 1.0}};
      if (all > 0) config["rope_scaling"].update({{"mscale", mscale}, {"mscale_all_dim", all}});
      write_text_file(folder + "/config.json", dump(config));
      const OpenedModel from_folder = opened(folder);
      const double wanted = all > 0 ? (1 + 0.1 * mscale * std::log(4.0)) / (1 + 0.1 * all * std::log(4.0)) : 1 + 0.1 * std::log(4.0);
      CHECK(magnitude_of(from_folder) == doctest::Approx(wanted).epsilon(1e-9));
      write_gguf(opened(folder), folder + ".gguf");
      CHECK(magnitude_of(opened(folder + ".gguf")) == doctest::Approx(wanted).epsilon(1e-6));  // keys are f32
    }
}

TEST_CASE("a choice among all groups of experts is none, in GGUF files too") {
  const ScratchFolder scratch;
  for (const char* groups : {"groups=2,groups_used=2", "groups=4,groups_used=4"}) {
    write_gguf(model_of(format("deepseek2:L=1,C=12,H=3,D=10,R=4,KA=12,QA=6,F=10,FD=10,E=4,K=2,FS=10,V=11,T=16,expert_sigmoid,{}", groups)),
               scratch / "m.gguf");
    const auto metadata = open_gguf_metadata(*open_file(scratch / "m.gguf"));
    REQUIRE_MESSAGE(metadata.ok(), metadata.status().to_string());
    CHECK(!metadata->has("deepseek2.expert_group_count"));
  }
  const auto config = parse_shorthand("deepseek2:L=1,C=12,H=3,D=10,R=4,KA=12,QA=6,F=10,FD=10,E=4,K=2,FS=10,V=11,T=16,groups=3,groups_used=3");
  REQUIRE(config.ok());
  check_says(build_model(*config).status(), StatusCode::kInvalidArgument, "groups = 3 does not divide E = 4");
}

TEST_CASE("gguf files of gemma4 state that logits have no bound, and notes name layers whose keys llama.cpp takes from others") {
  const ScratchFolder scratch;
  const auto gemma = [](const std::string& windows, const std::string& sizes, int shared) {
    const auto layers = 1 + std::ranges::count(windows, '|');
    return model_of(format("gemma4:L={},C=12,H=6,KV=2,D=6,F=10,V=11,T=16,windows={},head_sizes={},tied,rope_half{}", layers, windows, sizes,
                           shared > 0 ? format(",shared_kv={}", shared) : ""));
  };
  write_gguf(gemma("5|0", "6|8", 0), scratch / "m.gguf");
  const auto metadata = open_gguf_metadata(*open_file(scratch / "m.gguf"));
  REQUIRE_MESSAGE(metadata.ok(), metadata.status().to_string());
  const Result<double> bound = metadata->real("gemma4.final_logit_softcapping", -1);
  REQUIRE(bound.ok());
  CHECK(*bound == 0);
  struct Row {
    const char *windows, *sizes;
    int shared;
    const char* note;  // empty: none
  };
  const Row rows[] = {
      {"5|0|5|0", "6|8|6|8", 2, ""},
      {"5|5|0|0", "6|6|8|8", 1, ""},
      {"5|0|5|0", "6|8|6|8", 1, "layer 3 reads keys and values of layer 1, in llama.cpp those of layer 2: it will not open the file"},
      {"5|0|0|5|0", "6|8|8|6|8", 2, "layer 3 reads keys and values of layer 0, in llama.cpp those of layer 1: it will not open the file"},
      {"0|5|5|5", "8|6|6|6", 1, "layer 3 reads keys and values of layer 2, in llama.cpp those of layer 1: results differ"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.windows);
    OpenedModel model = gemma(row.windows, row.sizes, row.shared);
    const auto contents = gguf_contents(model, {});
    REQUIRE_MESSAGE(contents.ok(), contents.status().to_string());
    std::vector<std::string> notes;
    for (const std::string& note : contents->notes)
      if (note.find("llama.cpp") != note.npos) notes.push_back(note);
    CHECK(notes == (*row.note == 0 ? std::vector<std::string>() : std::vector<std::string>{row.note}));
  }
}

TEST_CASE("what others have no form for is refused by name") {
  check_says(huggingface_status(model_of("mlp:L=1,C=4,F=4,V=3")), StatusCode::kUnsupported,
             "family 'mlp' cannot be written as a Hugging Face folder");
  check_says(gguf_status(model_of("mlp:L=1,C=4,F=4,V=3")), StatusCode::kUnsupported, "known: bert, ");
  check_says(huggingface_status(model_of("llama:L=1,C=12,H=3,F=10,V=11,T=16,qkv_bias")),
             StatusCode::kUnsupported, "llama has no word for o_bias = 0");
  check_says(huggingface_status(model_of("llama:L=1,C=12,H=3,F=10,V=11,T=16,R=2")), StatusCode::kUnsupported,
             "llama has no word for R = 2");
  check_says(huggingface_status(model_of("llama:L=2,C=12,H=3,F=10,V=11,T=16,windows=4|0")),
             StatusCode::kUnsupported, "windows of layer 0 = 4");
  check_says(gguf_status(model_of("qwen2:L=1,C=12,H=3,F=10,V=11,T=16,window=4,rope_half")),
             StatusCode::kUnsupported, "GGUF's qwen2 has no word for windows of layer 0 = 4");
  check_says(gguf_status(model_of("smollm3:L=1,C=12,H=3,F=10,V=11,T=16,rope_layers=0")),
             StatusCode::kUnsupported, "rope_layers of layer 0 = 0");
  check_says(gguf_status(model_of("gemma2:L=1,C=12,H=3,D=6,F=10,V=11,T=16,softcap=50,tied")),
             StatusCode::kUnsupported, "no word for logit_softcap = 0");
  OpenedModel bare = model_of(kModels[0]);
  bare.model.metadata.erase("description");
  check_says(huggingface_status(bare), StatusCode::kUnsupported, "does not say which family");
  bare.model.metadata["description"] = kModels[1];
  check_says(gguf_status(bare), StatusCode::kUnsupported, "parameter 'block.0.q' [12, 12] it has not");
  OpenedModel adapted = model_of(kModels[0]);
  auto graph = with_adapters(adapted.model.graph, adaptable_weights(adapted.model.graph), {.rank = 2});
  REQUIRE(graph.ok());
  adapted.model.graph = std::move(*graph);
  check_says(huggingface_status(adapted), StatusCode::kFailedPrecondition, "merge them first (tessera merge");
}

TEST_CASE("a folder of somebody else is not replaced") {
  const ScratchFolder scratch;
  write_folder(model_of(kModels[0]), scratch / "export");
  CHECK(may_replace_huggingface(scratch / "export").ok());
  write_text_file(scratch / "export/notes.txt", "mine");
  check_says(may_replace_huggingface(scratch / "export"), StatusCode::kInvalidArgument, "has 'notes.txt'");
  std::filesystem::create_directory(scratch / "theirs");
  write_text_file(scratch / "theirs/model.safetensors", "x");
  check_says(may_replace_huggingface(scratch / "theirs"), StatusCode::kInvalidArgument,
             "wanted a new or empty folder");
  write_text_file(scratch / "theirs/config.json", R"({"model_type":"llama"})");
  check_says(may_replace_huggingface(scratch / "theirs"), StatusCode::kInvalidArgument,
             "is a model that no export wrote");
}

namespace {

TokenizerData sentencepiece() {
  TokenizerData data;
  data.kind = TokenizerKind::kSentencePiece;
  data.tokens = {"<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁ab", "▁▁", "▁▁▁"};
  data.scores = {0, 0, 0, -7, -5, -6, -1, -2, -1e9f, -1e9f};
  data.types.assign(data.tokens.size(), TokenType::kNormal);
  data.types[0] = TokenType::kUnknown;
  data.types[1] = data.types[2] = TokenType::kControl;
  data.unknown = 0;
  data.bos = 1;
  data.eos = 2;
  data.add_bos = true;
  data.end_ids = {2};
  return data;
}

TokenizerData byte_level() {
  TokenizerData data;
  data.kind = TokenizerKind::kByteLevelBpe;
  data.tokens = {"a", "b", "ab", "<|end|>", "Ġ", "Ġab"};
  data.types.assign(data.tokens.size(), TokenType::kNormal);
  data.types[3] = TokenType::kControl;
  data.merges = {"a b", "Ġ ab"};
  data.pre_tokenizer = "llama-bpe";
  data.eos = 3;
  data.end_ids = {3};
  return data;
}

}  // namespace

TEST_CASE("tokenizers become tokenizer.json, or a note says why not") {
  OpenedModel model = model_of(kModels[0]);
  model.model.metadata["chat_template"] = "{{ messages }}";
  const auto exported = [&](TokenizerData data) {
    OpenedModel copy = model;
    copy.model.tokenizer = std::move(data);
    auto contents = huggingface_contents(copy, {});
    REQUIRE_MESSAGE(contents.ok(), contents.status().to_string());
    std::map<std::string, std::string> texts(contents->texts.begin(), contents->texts.end());
    for (const std::string& note : contents->notes) texts["note"] += note;
    return texts;
  };
  auto texts = exported(sentencepiece());
  Json json = Json::parse(texts.at("tokenizer.json"));
  // By score, and of runs of spaces longer ones first.
  CHECK(json["model"]["merges"] == Json::array({"a b", "▁ ab", "▁ ▁▁", "▁▁ ▁", "▁ ▁"}));
  CHECK(json["model"]["vocab"]["▁ab"] == 7);
  CHECK(json["post_processor"]["single"][0]["SpecialToken"]["id"] == "<s>");
  CHECK(json["added_tokens"].size() == 3);
  CHECK(Json::parse(texts.at("config.json"))["eos_token_id"] == 2);
  CHECK(Json::parse(texts.at("tokenizer_config.json"))["chat_template"] == "{{ messages }}");
  TokenizerData tied = sentencepiece();
  tied.scores[7] = -1;
  texts = exported(tied);
  CHECK(!texts.contains("tokenizer.json"));
  CHECK(texts.at("note").find("tokens 6 and 7 have the same score") != std::string::npos);
  CHECK(texts.at("chat_template.jinja") == "{{ messages }}");
  json = Json::parse(exported(byte_level()).at("tokenizer.json"));
  CHECK(json["model"]["ignore_merges"] == true);
  CHECK(json["pre_tokenizer"]["pretokenizers"].size() == 2);
  CHECK(json["post_processor"].is_null());
}

TEST_CASE("a folder's tokenizer is written as it was read, and as the gguf vocabulary that it is") {
  const ScratchFolder scratch;
  OpenedModel model = model_of(kModels[0]);
  model.model.tokenizer = byte_level();
  write_folder(model, scratch / "first");
  const OpenedModel again = opened(scratch / "first");
  REQUIRE(again.model.tokenizer.has_value());
  CHECK(again.model.tokenizer->kind == TokenizerKind::kPipeline);
  write_folder(again, scratch / "second");
  const auto json_of = [&](const char* path) {
    return nlohmann::json::parse(read_text_file(scratch / path));
  };
  CHECK(json_of("first/tokenizer.json") == json_of("second/tokenizer.json"));
  CHECK(json_of("first/config.json")["eos_token_id"] == json_of("second/config.json")["eos_token_id"]);
  write_gguf(again, scratch / "m.gguf");
  const auto from_gguf = opened(scratch / "m.gguf").model.tokenizer;
  REQUIRE(from_gguf.has_value());
  CHECK(from_gguf->kind == TokenizerKind::kByteLevelBpe);
  CHECK(from_gguf->pre_tokenizer == "llama-bpe");
  CHECK(from_gguf->merges == byte_level().merges);
  OpenedModel unlike = again;
  std::string& pipeline = unlike.model.tokenizer->pipeline;
  pipeline.replace(pipeline.find("Isolated"), 8, "Removed");
  check_says(gguf_status(unlike), StatusCode::kUnsupported, "the tokenizer's pre_tokenizer is");
}

TEST_CASE("tokenizers and chat templates come back from gguf files") {
  const ScratchFolder scratch;
  for (const TokenizerData& data : {sentencepiece(), byte_level()}) {
    OpenedModel model = model_of(kModels[0]);  // of 11 tokens
    model.model.tokenizer = data;
    model.model.metadata["chat_template"] = "{{ messages }}";
    model.model.metadata["chat_template.tool_use"] = "{{ tools }}";
    write_gguf(std::move(model), scratch / "m.gguf");
    const Model again = opened(scratch / "m.gguf").model;
    REQUIRE(again.tokenizer.has_value());
    CHECK(again.tokenizer->kind == data.kind);
    CHECK(again.tokenizer->tokens.size() == 11);  // the rest is unused
    CHECK(std::ranges::equal(data.tokens, std::span(again.tokenizer->tokens).first(data.tokens.size())));
    CHECK(again.tokenizer->types.back() == TokenType::kUnused);
    CHECK(again.tokenizer->merges == data.merges);
    CHECK(again.tokenizer->eos == data.eos);
    CHECK(again.tokenizer->bos == data.bos);
    CHECK(again.tokenizer->add_bos == data.add_bos);
    CHECK(again.metadata.at("chat_template") == "{{ messages }}");
    CHECK(again.metadata.at("chat_template.tool_use") == "{{ tools }}");
  }
  OpenedModel model = model_of(kModels[0]);
  model.model.tokenizer = byte_level();
  model.model.tokenizer->kind = TokenizerKind::kRwkv;
  check_says(gguf_status(model), StatusCode::kUnsupported, "leave it out (--no-tokenizer");
}
