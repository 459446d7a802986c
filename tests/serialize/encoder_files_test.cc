// Encoders, and decoders that compute no texts, out to Hugging Face folders and GGUF files and in again, and what is refused of such folders.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "graph/base/text.h"
#include "serialize/export/gguf_export.h"
#include "serialize/export/huggingface_export.h"
#include "serialize/import/gguf_file.h"
#include "serialize/import/huggingface_config.h"
#include "serialize/opened_model.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/serialize/test_data.h"
#include "text/json.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

const std::vector<std::string> kModels = {
    "bert:L=2,C=12,H=3,F=10,V=11,T=16",
    "bert:L=1,C=12,H=3,F=10,V=11,T=16,mlm=0",
    "bert:L=1,C=12,H=3,F=10,V=11,T=16,pooler",
    "bert:L=1,C=12,H=3,F=10,V=11,T=16,Y=3,N=4,norm_eps=1e-6",
    "roberta:L=2,C=12,H=3,F=10,V=11,T=16",
    "roberta:L=1,C=12,H=3,F=10,V=11,T=16,mlm=0,position_offset=1",
    "roberta:L=1,C=12,H=3,F=10,V=11,T=16,N=2",
    "distilbert:L=2,C=12,H=3,F=10,V=11,T=16",
    "distilbert:L=1,C=12,H=3,F=10,V=11,T=16,mlm=0",
    "distilbert:L=1,C=12,H=3,F=10,V=11,T=16,N=2",
    "modernbert:L=4,C=12,H=3,F=10,V=11,T=16,window=3",
    "modernbert:L=2,C=12,H=3,F=10,V=11,T=16,mlm=0,windows=0|0",
    "modernbert:L=4,C=12,H=3,F=10,V=11,T=16,N=3,window=5",
    "modernbert:L=4,C=12,H=3,F=10,V=11,T=16,N=3,window=5,class_mean",
    "nomic-bert:L=2,C=12,H=3,F=10,V=11,T=16",
    "nomic-bert:L=1,C=12,H=3,F=10,V=11,T=16,mlm=0,rope_theta=2000",
    "nomic-bert:L=1,C=12,H=3,F=10,V=11,T=16,N=2",
    "bert:L=1,C=12,H=3,F=10,V=11,T=16,tied=0",
    "roberta:L=1,C=12,H=3,F=10,V=11,T=16,tied=0",
    "nomic-bert:L=1,C=12,H=3,F=10,V=11,T=16,tied=0",
};
// Decoders in forms that only folders have.
const std::vector<std::string> kFolderModels = {
    "qwen3:L=2,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,rope_half,head=0",
    "gemma3:L=2,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,window=5,tied,rope_half,causal=0",
    "gemma2:L=2,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,tied=0,rope_half,softcap=50,logit_softcap=30,head=0",
    "gpt2:L=1,C=12,H=3,V=11,T=16,tied=0,head=0",
    "llama:L=1,C=12,H=3,F=10,V=11,T=16,rope_half,causal=0",
    "llama:L=1,C=12,H=3,F=10,V=11,T=16,rope_half,causal=0,window=5",
    "gpt2:L=1,C=12,H=3,V=11,T=16,causal=0",
    "qwen2:L=1,C=12,H=3,KV=1,F=10,V=11,T=16,rope_half,classes=2",
    "gemma3:L=1,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,window=5,tied,rope_half,classes=3",
    "deepseek2:L=1,C=12,H=3,D=10,R=4,KA=12,F=10,E=4,K=2,FS=20,V=11,T=16,norm_eps=1e-6,classes=2",
    "gpt2:L=1,C=12,H=3,V=11,T=16,classes=2",
    "gemma3:L=2,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,window=5,tied,rope_half,causal=0,head=0",
    "gemma3:L=2,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,window=5,tied,rope_half,causal=0,head=0,dense=20|12",
    "qwen3:L=1,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,tied,rope_half,head=0,dense=7",
    "bert:L=1,C=12,H=3,F=10,V=11,T=16,mlm=0,dense=9|8|7,dense_bias",
};
// EmbeddingGemma's form.
const std::string kEmbeddingGemma =
    "gemma3:L=7,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,window=5,tied,rope_half,causal=0,head=0,dense=20|12";

OpenedModel model_of(const std::string& shorthand) {
  const auto config = parse_shorthand(shorthand);
  REQUIRE(config.ok());
  auto graph = build_model(*config);
  REQUIRE_MESSAGE(graph.ok(), graph.status().to_string());
  OpenedModel opened;
  opened.model.graph = std::move(*graph);
  opened.model.metadata = {{"architecture", config->family}, {"description", to_text(*config)}};
  uint32_t state = 1;
  for (const TensorId id : opened.model.graph.tensors_of_kind(TensorKind::kParameter)) {
    const Tensor& tensor = opened.model.graph.tensor(id);
    std::vector<float> values(static_cast<size_t>(tensor.type.shape.elements()));
    for (float& value : values) {
      state = state * 1664525u + 1013904223u;
      value = tensor.name == "zero_bias" ? 0 : (static_cast<float>(state >> 24) - 128) / 128;
    }
    opened.parameters.push_back(
        source_in_memory(tensor.name, HostTensor::copy_of<float>(tensor.type, values)));
  }
  return opened;
}

void write(const ExportContents& contents, const std::string& path) {
  if (contents.is_folder) std::filesystem::create_directory(path);
  for (const TensorFile& file : contents.files) {
    if (const size_t slash = file.name.find('/'); slash != file.name.npos)
      std::filesystem::create_directory(path + "/" + file.name.substr(0, slash));
    auto writer = TensorFileWriter::create(file, contents.is_folder ? path + "/" + file.name : path);
    REQUIRE(writer.ok());
    while (!writer->is_done()) REQUIRE(writer->write_slice().ok());
    REQUIRE(writer->commit().ok());
  }
  for (const auto& [name, text] : contents.texts) {
    if (const size_t slash = name.find('/'); slash != name.npos)
      std::filesystem::create_directory(path + "/" + name.substr(0, slash));
    write_text_file(path + "/" + name, text);
  }
}

void write_in_folder(OpenedModel model, const std::string& path) {
  auto contents = huggingface_contents(model, {});
  REQUIRE_MESSAGE(contents.ok(), contents.status().to_string());
  write(*contents, path);
}

Result<OpenedModel> open_path(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(auto source, open_model_file(path));
  return open_model(std::move(source));
}

OpenedModel opened(const std::string& path) {
  auto model = open_path(path);
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  return std::move(*model);
}

std::map<std::string, std::vector<float>> values_of(const OpenedModel& model) {
  std::map<std::string, std::vector<float>> all;
  for (const TensorSource& parameter : model.parameters) {
    const auto value = read_whole(parameter);
    REQUIRE(value.ok());
    all[parameter.name].assign(value->as<float>().begin(), value->as<float>().end());
  }
  return all;
}

bool has_classes(const std::string& model) { return model.find(",N=") != model.npos; }

Status config_status(std::string_view text) {
  TSR_ASSIGN_OR_RETURN(const Json json, parse_json(text, "config.json"));
  return read_huggingface_config(json).status();
}

}  // namespace

TEST_CASE("a folder of every encoder, and of a decoder without a head, is read as the model that it was, bit for bit") {
  const ScratchFolder scratch;
  std::vector<std::string> models = kModels;
  models.insert(models.end(), kFolderModels.begin(), kFolderModels.end());
  for (size_t i = 0; i < models.size(); ++i) {
    CAPTURE(models[i]);
    OpenedModel before = model_of(models[i]);
    if (models[i].find("classes=2") != std::string::npos)
      before.model.metadata.insert({{"padding_token", "7"}, {"problem_type", "regression"}});
    if (models[i].find("N=2") != std::string::npos) before.model.metadata["labels"] = R"(["no","yes"])";
    const std::string folder = scratch / format("{}", i);
    auto contents = huggingface_contents(before, {});
    REQUIRE_MESSAGE(contents.ok(), contents.status().to_string());
    write(*contents, folder);
    const OpenedModel after = opened(folder);
    OpenedModel again = model_of(models[i]);
    CHECK(values_of(after) == values_of(again));
    CHECK(after.model.metadata.at("architecture") == before.model.metadata.at("architecture"));
    if (models[i].find("N=2") != std::string::npos)
      CHECK(after.model.metadata.at("labels") == R"(["no","yes"])");
    if (models[i].find("classes=2") != std::string::npos) {
      CHECK(after.model.metadata.at("padding_token") == "7");
      CHECK(after.model.metadata.at("problem_type") == "regression");
    }
    CHECK(print(after.model.graph) == print(again.model.graph));
  }
}

TEST_CASE("a gguf file of an encoder has its blocks, and its classes where llama.cpp computes them alike") {
  const ScratchFolder scratch;
  for (size_t i = 0; i < kModels.size(); ++i) {
    CAPTURE(kModels[i]);
    OpenedModel before = model_of(kModels[i]);
    before.model.metadata["pooling"] = "cls";
    const std::string path = scratch / format("{}.gguf", i);
    auto contents = gguf_contents(before, {});
    const bool no_word =
        has_classes(kModels[i]) && (kModels[i].starts_with("distil") || kModels[i].starts_with("nomic"));
    if (no_word) {
      CHECK(contents.status().code() == StatusCode::kUnsupported);
      CHECK(contents.status().message().find("the classes of a") != std::string_view::npos);
      continue;
    }
    REQUIRE_MESSAGE(contents.ok(), contents.status().to_string());
    write(*contents, path);
    const OpenedModel after = opened(path);
    const auto own = values_of(model_of(kModels[i]));
    for (const auto& [name, values] : values_of(after)) {
      CAPTURE(name);
      if (name == "position_embedding") {  // without the rows before that of position 0
        const std::vector<float>& all = own.at(name);
        REQUIRE(all.size() >= values.size());
        CHECK(std::equal(values.begin(), values.end(), all.end() - std::ssize(values)));
        continue;
      }
      const std::string ours = name.starts_with("pooler") && kModels[i].starts_with("roberta")
                                   ? "pre_classifier" + name.substr(6)
                                   : name;
      CHECK(values == own.at(ours));
    }
    CHECK(after.model.graph.find_output("hidden").has_value());
    CHECK(after.model.graph.find_output("logits").has_value() == has_classes(kModels[i]));
    CHECK(after.model.metadata.at("pooling") == "cls");
    const auto reads_mean = [](const std::string& text) { return text.find("class_mean=1") != text.npos; };
    CHECK(reads_mean(after.model.metadata.at("description")) == reads_mean(before.model.metadata.at("description")));
  }
}

TEST_CASE("gguf files of decoders have no word for attention in both directions and for classes") {
  const auto refusal = [](const std::string& shorthand) {
    OpenedModel model = model_of(shorthand);
    return std::string(gguf_contents(model, {}).status().message());
  };
  CHECK(refusal(kFolderModels[4]).find("attention in both directions (causal = 0)") != std::string::npos);
  CHECK(refusal("gpt2:L=1,C=12,H=3,V=11,T=16,classes=2").find("the classes of texts") != std::string::npos);
  OpenedModel headless = model_of(kFolderModels[0]);
  const auto contents = gguf_contents(headless, {});
  REQUIRE_MESSAGE(contents.ok(), contents.status().to_string());
  CHECK(contents->notes[0].find("no projection onto the vocabulary") != std::string::npos);
}

TEST_CASE("sentence-transformers' files go with the folder, and wrong ones are refused by name") {
  const ScratchFolder scratch;
  OpenedModel before = model_of(kModels[1]);
  before.model.metadata.insert({{"pooling", "mean"}, {"normalize", "1"}, {"embedding_tokens", "12"}});
  const std::string folder = scratch / "pooled";
  auto contents = huggingface_contents(before, {});
  REQUIRE(contents.ok());
  write(*contents, folder);
  const OpenedModel after = opened(folder);
  CHECK(after.model.metadata.at("pooling") == "mean");
  CHECK(after.model.metadata.at("normalize") == "1");
  CHECK(after.model.metadata.at("embedding_tokens") == "12");
  CHECK(may_replace_huggingface(folder).ok());

  const std::string modules = folder + "/modules.json", pooling = folder + "/1_Pooling/config.json";
  const std::string good_modules = read_text_file(modules);
  const auto refused = [&](const std::string& path, const std::string& text, StatusCode code,
                           std::string_view words) {
    const std::string good = read_text_file(path);
    write_text_file(path, text);
    const Status status = open_path(folder).status();
    write_text_file(path, good);
    CAPTURE(text);
    CAPTURE(status.to_string());
    CHECK(status.code() == code);
    CHECK(status.message().find(words) != std::string_view::npos);
  };
  refused(pooling, R"({"pooling_mode_max_tokens":true})", StatusCode::kUnsupported,
          "pooling_mode_max_tokens is true");
  refused(pooling, R"({"pooling_mode_mean_tokens":true,"pooling_mode_cls_token":true})",
          StatusCode::kUnsupported, "2 kinds of pooling");
  refused(pooling, R"({"pooling_mode_mean_tokens":"yes"})", StatusCode::kCorrupt, "pooling_mode_mean_tokens");
  refused(pooling, R"({"pooling_mode_mean_tokens":true,"word_embedding_dimension":7})", StatusCode::kCorrupt,
          "word_embedding_dimension is 7, the model's vectors have 12");
  refused(pooling, "[]", StatusCode::kCorrupt, "wanted an object");
  refused(pooling, "{", StatusCode::kCorrupt, "is not JSON");
  refused(pooling, "{}", StatusCode::kUnsupported, "0 kinds of pooling");
  refused(modules, R"([{"type":"sentence_transformers.models.Dense","path":"2_Dense"}])",
          StatusCode::kUnsupported, "module Dense before Pooling");
  refused(modules, R"([{"type":"sentence_transformers.models.LSTM","path":"2_LSTM"}])", StatusCode::kUnsupported,
          "module 'sentence_transformers.models.LSTM'; known: Transformer, Pooling, Dense, Normalize");
  refused(modules, R"([{"type":"a.Pooling","path":"../.."}])", StatusCode::kCorrupt, "path is '../..'");
  refused(modules, R"([{"type":"a.Pooling","path":"absent"}])", StatusCode::kNotFound,
          "absent/config.json is missing");
  refused(modules, R"([7])", StatusCode::kCorrupt, "wanted a type and a path");
  refused(modules, R"({"a":1})", StatusCode::kCorrupt, "wanted a list of modules");
  refused(folder + "/sentence_bert_config.json", R"({"max_seq_length":-4})", StatusCode::kCorrupt,
          "max_seq_length is -4");
  refused(folder + "/sentence_bert_config.json", R"({"do_lower_case":true})", StatusCode::kUnsupported,
          "do_lower_case is true");
  write_text_file(folder + "/config_sentence_transformers.json", R"({"prompts":{}})");
  refused(folder + "/config_sentence_transformers.json", R"({"default_prompt_name":"query"})",
          StatusCode::kUnsupported, "default_prompt_name is \"query\"");
}

TEST_CASE("Dense modules go with the folder, and others than layers of the model are refused by name") {
  const ScratchFolder scratch;
  OpenedModel before = model_of(kEmbeddingGemma);
  before.model.metadata.insert({{"pooling", "mean"}, {"normalize", "1"}});
  const std::string folder = scratch / "gemma", dense = folder + "/2_Dense/config.json", modules = folder + "/modules.json";
  auto contents = huggingface_contents(before, {});
  REQUIRE_MESSAGE(contents.ok(), contents.status().to_string());
  write(*contents, folder);
  CHECK(may_replace_huggingface(folder).ok());
  const auto config = parse_json(read_text_file(folder + "/config.json"), "config.json");
  REQUIRE(config.ok());
  CHECK((*config)["architectures"][0] == "Gemma3TextModel");
  CHECK((*config)["use_bidirectional_attention"] == true);
  CHECK((*config)["sliding_window"] == 8);  // both sides of a window of 5
  CHECK(!config->contains("is_causal"));
  const auto list = parse_json(read_text_file(modules), "modules.json");
  REQUIRE(list.ok());
  std::string paths;
  for (const Json& each : *list) paths += each["path"].get<std::string>() + " ";
  CHECK(paths == " 1_Pooling 2_Dense 3_Dense 4_Normalize ");
  const OpenedModel after = opened(folder);
  CHECK(values_of(after) == values_of(model_of(kEmbeddingGemma)));
  CHECK(after.model.origin.files == 3);

  const auto refused = [&](const std::string& path, const std::string& text, StatusCode code, std::string_view words) {
    const std::string good = read_text_file(path);
    write_text_file(path, text);
    const Status status = open_path(folder).status();
    write_text_file(path, good);
    CAPTURE(text);
    CAPTURE(status.to_string());
    CHECK(status.code() == code);
    CHECK(status.message().find(words) != std::string_view::npos);
  };
  const std::string identity = R"("activation_function":"torch.nn.modules.linear.Identity"})";
  refused(dense, R"({"in_features":12,"out_features":20,"bias":false,"activation_function":"torch.nn.modules.activation.Tanh"})",
          StatusCode::kUnsupported, "activation_function is 'torch.nn.modules.activation.Tanh'");
  refused(dense, R"({"in_features":12,"out_features":20,"bias":false})", StatusCode::kUnsupported, "activation.Tanh");  // the default
  refused(dense, R"({"in_features":11,"out_features":20,"bias":false,)" + identity, StatusCode::kCorrupt, "in_features is 11");
  refused(dense, R"({"in_features":12,"out_features":21,"bias":false,)" + identity, StatusCode::kCorrupt, "in_features is 20");
  refused(dense, R"({"in_features":12,"out_features":20,"bias":true,)" + identity, StatusCode::kCorrupt, "has no tensor 'linear.bias'");
  refused(dense, R"({"in_features":12,"out_features":20,"bias":false,"module_input_name":"token_embeddings",)" + identity,
          StatusCode::kUnsupported, "module_input_name");
  refused(modules, R"([{"type":"a.Pooling","path":"1_Pooling"},{"type":"a.Normalize","path":""},{"type":"a.Dense","path":"2_Dense"}])",
          StatusCode::kUnsupported, "module Dense after Normalize");
  refused(modules, R"([{"type":"a.Pooling","path":"1_Pooling"},{"type":"a.Dense","path":"absent"}])", StatusCode::kNotFound,
          "absent/config.json is missing");
  std::filesystem::rename(folder + "/2_Dense/model.safetensors", folder + "/2_Dense/pytorch_model.bin");
  CHECK(open_path(folder).status().message().find("weights in pytorch_model.bin; save them as model.safetensors") != std::string_view::npos);
}

TEST_CASE("a Dense module without a bias has zeros where another has one") {
  const ScratchFolder scratch;
  const std::string shorthand = "qwen3:L=1,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,tied,rope_half,head=0,dense=20|12";
  write_in_folder(model_of(shorthand), scratch / "plain");
  write_in_folder(model_of(shorthand + ",dense_bias"), scratch / "biased");
  for (const char* const file : {"/config.json", "/model.safetensors"})
    std::filesystem::copy_file((scratch / "biased") + "/3_Dense" + file, (scratch / "plain") + "/3_Dense" + file,
                               std::filesystem::copy_options::overwrite_existing);
  auto values = values_of(opened(scratch / "plain"));
  CHECK(values.at("dense.0.bias") == std::vector<float>(20));
  const auto biased = values_of(model_of(shorthand + ",dense_bias"));
  CHECK(values.at("dense.1.bias") == biased.at("dense.1.bias"));
  CHECK(values.at("dense.1") == biased.at("dense.1"));
}

TEST_CASE("EmbeddingGemma's gguf file has attention in both directions and its Dense modules") {
  const ScratchFolder scratch;
  OpenedModel before = model_of(kEmbeddingGemma);
  before.model.metadata["pooling"] = "mean";
  auto contents = gguf_contents(before, {});
  REQUIRE_MESSAGE(contents.ok(), contents.status().to_string());
  CHECK(std::ranges::none_of(contents->notes, [](const std::string& note) { return note.find("projection") != note.npos; }));
  write(*contents, scratch / "gemma.gguf");
  const auto source = open_file(scratch / "gemma.gguf");
  REQUIRE(source.ok());
  const GgufFile file = *GgufFile::open(*source);
  CHECK(*file.text("general.architecture") == "gemma-embedding");
  CHECK(*file.integer("gemma-embedding.attention.sliding_window") == 8);
  CHECK(*file.integer("gemma-embedding.pooling_type") == 1);
  CHECK(*file.integer("gemma-embedding.dense_2_feat_out") == 20);
  CHECK(*file.integer("gemma-embedding.dense_3_feat_in") == 20);
  CHECK(file.tensors().contains("dense_3.weight"));
  const OpenedModel after = opened(scratch / "gemma.gguf");
  CHECK(values_of(after) == values_of(model_of(kEmbeddingGemma)));
  const std::string& description = after.model.metadata.at("description");
  for (const char* const part : {"causal=0", "head=0", "dense=20|12", "windows=5|5|5|5|5|0|5"})
    CHECK(description.find(part) != std::string::npos);

  const auto refusal = [](const std::string& shorthand) {
    OpenedModel model = model_of(shorthand);
    return std::string(gguf_contents(model, {}).status().message());
  };
  const std::string form = "gemma3:L=2,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,window=5,tied,rope_half,causal=0";
  CHECK(refusal(form + ",head=0,dense=20").find("no word for width 0 of dense = 20") != std::string::npos);
  CHECK(refusal(form + ",head=0,dense=12,dense_bias").find("no word for dense_bias") != std::string::npos);
  CHECK(refusal(form).find("no word for a projection onto the vocabulary") != std::string::npos);
  CHECK(refusal("qwen3:L=1,C=12,H=3,KV=1,D=6,F=10,V=11,T=16,rope_half,head=0,dense=12").find("width 0 of dense") != std::string::npos);
  CHECK(refusal(form + ",head=0").empty());
}

TEST_CASE("configurations of encoders that change the result are refused by name") {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"({"model_type":"bert","hidden_act":"relu"})", "hidden_act is 'relu'"},
      {R"({"model_type":"bert","position_embedding_type":"relative_key"})", "position_embedding_type"},
      {R"({"model_type":"bert","is_decoder":true})", "is_decoder is true"},
      {R"({"model_type":"bert","architectures":["BertForQuestionAnswering"]})", "BertForQuestionAnswering"},
      {R"({"model_type":"bert","architectures":["BertForSequenceClassification"],"num_labels":1000000000})",
       "num_labels is 1000000000"},
      {R"({"model_type":"bert","architectures":["BertForSequenceClassification"],"id2label":{"0":"a","7":"b"}})",
       "id2label has no text for \"1\""},
      {R"({"model_type":"bert","architectures":["BertForSequenceClassification"],"id2label":{"0":"a"},"num_labels":2})",
       "id2label has 1 labels, num_labels is 2"},
      {R"({"model_type":"bert","hidden_size":10,"num_attention_heads":3})", "hidden_size is 10"},
      {R"({"model_type":"bert","num_hidden_layers":1000000000})", "num_hidden_layers is 1000000000"},
      {R"({"model_type":"roberta","max_position_embeddings":2})", "max_position_embeddings is 2"},
      {R"({"model_type":"roberta","pad_token_id":-1})", "pad_token_id is -1"},
      {R"({"model_type":"distilbert","activation":"relu"})", "activation is 'relu'"},
      {R"({"model_type":"modernbert","norm_bias":true})", "norm_bias is true"},
      {R"({"model_type":"modernbert","attention_bias":true})", "attention_bias is true"},
      {R"({"model_type":"modernbert","layer_types":["full_attention"]})", "layer_types has 1 names"},
      {R"({"model_type":"modernbert","global_rope_theta":-3})", "rope_theta is -3"},
      {R"({"model_type":"modernbert","architectures":["ModernBertForSequenceClassification"],"classifier_pooling":"max"})",
       "classifier_pooling is 'max'"},
      {R"({"model_type":"bert","architectures":["BertForSequenceClassification"],"problem_type":"ranking"})",
       "problem_type is 'ranking'"},
      {R"({"model_type":"nomic_bert","n_embd":768,"activation_function":"swiglu","prenorm":true})",
       "prenorm is true"},
      {R"({"model_type":"nomic_bert","rope_parameters":{"rope_type":"yarn","factor":2}})",
       "rope_type is 'yarn'"},
  };
  for (const auto& [text, words] : cases) {
    CAPTURE(text);
    const Status status = config_status(text);
    CAPTURE(status.to_string());
    CHECK(!status.ok());
    CHECK(status.message().find(words) != std::string_view::npos);
  }
  CHECK(config_status(R"({"model_type":"xlm-roberta","architectures":["XLMRobertaModel"]})").ok());
  CHECK(config_status(R"({"model_type":"nomic_bert","n_embd":768,"activation_function":"swiglu"})").ok());
  CHECK(config_status(R"({"model_type":"camembert","architectures":["CamembertForMaskedLM"]})").ok());
}

TEST_CASE("gguf files of encoders without what they need say what is missing") {
  const auto keys = [](bool causal = false, const char* name = "bert.block_count") {
    GgufBuilder writer;
    writer.text("general.architecture", "bert");
    writer.u32(name, 1).u32("bert.embedding_length", 8).u32("bert.attention.head_count", 2);
    writer.u32("bert.feed_forward_length", 8).u32("bert.context_length", 16);
    writer.f32("bert.attention.layer_norm_epsilon", 1e-12f).flag("bert.attention.causal", causal);
    return writer;
  };
  const auto says = [&](GgufBuilder writer, std::string_view words) {
    const Status found = open_gguf(source_of(writer.finish())).status();
    CAPTURE(found.to_string());
    CHECK(!found.ok());
    CHECK(found.message().find(words) != std::string_view::npos);
  };
  const auto with_table = [&](GgufBuilder writer) {
    return writer.tensor_f32("token_embd.weight", {8, 3}, std::vector<float>(24));
  };
  says(keys(), "token_embd.weight");
  says(with_table(keys(true)), "attention.causal is true");
  says(with_table(keys(false, "bert.blocks")), "block_count");
  says(with_table(keys()), "are missing");
  says(with_table(keys().u32("bert.expert_count", 8)), "expert_count is 8");
  says(with_table(keys().u32("bert.pooling_type", 9)), "pooling_type is 9");
  says(with_table(keys()).tensor_f32("cls.output.weight", {8, 2}, std::vector<float>(16)),
       "without 'cls.weight'");
}
