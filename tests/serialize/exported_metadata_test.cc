// Metadata of models in other projects' files, both ways: pooling, recommended settings, classes.
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "serialize/class_head.h"
#include "serialize/export/gguf_metadata_keys.h"
#include "serialize/export/sentence_files.h"
#include "serialize/generation_config.h"
#include "serialize/import/gguf_metadata.h"
#include "serialize/import/sentence_modules.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/serialize/test_data.h"
#include "text/json.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

using Metadata = std::map<std::string, std::string>;

// The keys of a GGUF file with these metadata, and what is read of them.
GgufFile gguf_of(const Metadata& metadata, bool has_classes = false) {
  Model model;
  model.metadata = metadata;
  tessera::GgufWriter out;
  write_gguf_metadata(model, "llama", has_classes, out);
  auto file = out.finish({});
  REQUIRE(file.ok());
  auto read = GgufFile::open(source_of(file->header));
  REQUIRE_MESSAGE(read.ok(), read.status().to_string());
  return std::move(*read);
}
Metadata read_back(const GgufFile& file) {
  Metadata metadata;
  const Status status = read_gguf_metadata(file, "llama", metadata);
  REQUIRE_MESSAGE(status.ok(), status.to_string());
  metadata.erase("source_format");
  return metadata;
}

Json settings_of(const Metadata& metadata) {
  return huggingface_generation_config(metadata.at("generation_config"));
}

}  // namespace

TEST_CASE("every pooling of a gguf file is read, written and read again") {
  for (const std::string_view name : kGgufPoolings) {
    const Metadata before = {{"pooling", std::string(name)}};
    const GgufFile file = gguf_of(before);
    CHECK(kGgufPoolings[static_cast<size_t>(*file.integer("llama.pooling_type"))] == name);
    CHECK(read_back(file) == before);
  }
  CHECK(read_back(gguf_of({})).empty());
  Metadata metadata;
  tessera::testing::GgufBuilder writer;
  writer.u32("llama.pooling_type", 7);
  const auto file = GgufFile::open(source_of(writer.finish()));
  REQUIRE(file.ok());
  CHECK(read_gguf_metadata(*file, "llama", metadata).message() ==
        "llama.pooling_type is 7; known: 0 none, 1 mean, 2 cls, 3 last, 4 rank");
}

TEST_CASE("what gguf has no word for comes back by keys of our own") {
  const Metadata before = {{"pooling", "last"},
                           {"normalize", "1"},
                           {"embedding_tokens", "256"},
                           {"sentence_settings", R"({"prompts":{"query":"q: "}})"},
                           {"problem_type", "multi_label_classification"},
                           {"class_activation", "none"}};
  CHECK(read_back(gguf_of(before)) == before);
  // Classes are read where they are: the number is rank's.
  const GgufFile file = gguf_of(before, true);
  CHECK(*file.integer("llama.pooling_type") == kGgufRankPooling);
  CHECK(read_back(file) == before);
}

TEST_CASE("recommended settings go through a gguf file and come back as they were") {
  const char* const kConfigs[] = {
      R"({"do_sample":true,"temperature":0.6,"top_k":20,"top_p":0.95,"repetition_penalty":1.05})",
      R"({"temperature":0.7,"min_p":0.01})",
      R"({"do_sample":false})",
      R"({"do_sample":false,"temperature":0.6,"top_p":0.9})",
      R"({"do_sample":true,"top_k":0,"max_new_tokens":2048,"stop_strings":["END"]})",
      R"({"top_p":1,"temperature":1})",
  };
  for (const char* const config : kConfigs) {
    CAPTURE(config);
    const Metadata after = read_back(gguf_of({{"generation_config", config}}));
    Json wanted = *parse_json(config, ""), found = settings_of(after);
    CHECK(nlohmann::json(found) == nlohmann::json(wanted));
    CHECK(read_back(gguf_of(after)) == after);
  }
  const GgufFile file = gguf_of(
      {{"generation_config",
        R"({"do_sample":false,"top_k":20,"repetition_penalty":1.1,"eos_token_id":[1,2],"transformers_version":"5"})"}});
  CHECK(*file.real("general.sampling.temp") == 0);
  CHECK(*file.integer("general.sampling.top_k") == 20);
  CHECK(*file.real("general.sampling.penalty_repeat") == doctest::Approx(1.1));
  CHECK(*file.integer("general.sampling.penalty_last_n") == -1);  // of all tokens
  CHECK(*file.text("tessera.generation_config") == R"({"do_sample":false})");
  CHECK(!gguf_of({{"generation_config", R"({"eos_token_id":1})"}}).has("tessera.generation_config"));
}

TEST_CASE("recommended settings of a gguf file are a generation_config.json that is obeyed") {
  const auto as_json = [](const char* text) { return nlohmann::json(huggingface_generation_config(text)); };
  CHECK(as_json(R"({"general.sampling.temp":0.6,"general.sampling.top_k":40,"general.sampling.penalty_last_n":-1})") ==
        nlohmann::json({{"do_sample", true}, {"temperature", 0.6}, {"top_k", 40}}));
  CHECK(as_json(R"({"general.sampling.temp":0,"general.sampling.top_p":0.9})") ==
        nlohmann::json({{"do_sample", false}, {"top_p", 0.9}}));
  CHECK(as_json("").empty());
  CHECK(as_json("[1]").empty());
  CHECK(as_json("{").empty());
}

TEST_CASE("vectors of any model keep the files of sentence-transformers") {
  Model model;
  model.metadata = {{"pooling", "last"}, {"normalize", "1"}, {"embedding_tokens", "32"}};
  CHECK(sentence_files(model, 8).size() == 3);
  for (const char* const pooling : {"none", "rank", ""}) {
    model.metadata["pooling"] = pooling;
    CHECK(sentence_files(model, 8).empty());
  }
}

TEST_CASE("scores of classes are what transformers' pipeline makes, or what a cross encoder names") {
  const auto activation = [](std::string_view named, std::string_view problem, int64_t classes) {
    const auto found = class_activation(named, problem, classes);
    return found.ok() ? std::string(name_of(*found)) : std::string(found.status().message());
  };
  CHECK(activation("", "regression", 1) == "none");
  CHECK(activation("", "regression", 3) == "none");
  CHECK(activation("", "", 1) == "sigmoid");
  CHECK(activation("", "", 3) == "softmax");
  CHECK(activation("", "single_label_classification", 2) == "softmax");
  CHECK(activation("", "multi_label_classification", 3) == "sigmoid");
  CHECK(activation("tanh", "regression", 1) == "tanh");
  CHECK(activation("my.Own", "", 1).find("'my.Own'; known: none") != std::string::npos);
  CHECK(activation("", "ranking", 1).find("'ranking'") != std::string::npos);
  for (const char* const module : {"torch.nn.modules.linear.Identity", "torch.nn.Identity"})
    CHECK(class_activation_from_torch(module) == ClassActivation::kNone);
  CHECK(class_activation_from_torch("torch.nn.modules.activation.Sigmoid") == ClassActivation::kSigmoid);
  CHECK(!class_activation_from_torch("os.Sigmoid"));
  std::vector<float> row = {1, 2, 3};
  tessera::apply(ClassActivation::kNone, row);
  CHECK(row == std::vector<float>{1, 2, 3});
  tessera::apply(ClassActivation::kTanh, row);
  CHECK(row[0] == doctest::Approx(0.761594));
}
