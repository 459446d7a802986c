// Files of every format that was ever released, kept in tests/data: they must load for ever.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "graph/base/text.h"
#include "serialize/checkpoint.h"
#include "serialize/model.h"
#include "serialize/sequence_file.h"
#include "tests/saved_checkpoint.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/serialize/test_data.h"
#include "tests/whole_model.h"
#include "text/tokenizer/hugging_face.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

std::string sample(const std::string& name) { return std::string(TSR_SOURCE_DIR) + "/tests/data/" + name; }

Model sample_model() {
  auto model = import_gguf(source_of(small_llama(false).finish()));
  REQUIRE(model.ok());
  return *model;
}

Model sample_model_with_pipeline() {
  const auto data = hf_tokenizer(
      {R"({"normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Metaspace", "replacement": "_"},
          "decoder": {"type": "Metaspace", "replacement": "_"},
          "post_processor": {"type": "BertProcessing", "cls": ["<s>", 5], "sep": ["</s>", 6]},
          "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "_": 2, "ab": 3, "_ab": 4}, "merges": ["a b", ["_", "ab"]]},
          "added_tokens": [{"id": 5, "content": "<s>", "special": true, "rstrip": true},
                           {"id": 6, "content": "</s>", "special": true}]})",
       "",
       {6}});
  REQUIRE(data.ok());
  Model model = sample_model();
  model.tokenizer = *data;
  return model;
}

CheckpointInfo sample_checkpoint() {
  CheckpointInfo info;
  info.step = 12;
  info.values = {{"data_position", "96"}, {"seed", "7"}};
  info.tensors = {{"w", {DType::kF32, {3, 5}}}, {"w.m", {DType::kF32, {3, 5}}}, {"step", {DType::kI64, {}}}};
  return info;
}

CheckpointInfo sample_checkpoint_over_a_base() {
  CheckpointInfo info = sample_checkpoint();
  info.values["base_path"] = "base.gguf";
  info.base = {{"q", {DType::kQ4_0, {2, 64}}, 0x0123456789abcdef}, {"norm", {DType::kF32, {64}}, 1}};
  return info;
}

Status sample_bytes(std::string_view name, std::span<std::byte> out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(name.size() * 16 + i);
  return {};
}

SequenceHeader sample_sequence() {
  return {.model = 0x0123456789abcdef,
          .root = 7,
          .states = {{"block.0.attention.k_pages", DType::kF32, 2, 4},
                     {"block.0.attention.v_pages", DType::kBF16, 2, 3}},
          .tokens = {5, 1, 4, 0, 2},
          .cached = 3};
}

// A file of pages of 8 bits.
SequenceHeader sample_sequence_of_blocks() {
  SequenceHeader header = sample_sequence();
  header.states = {{"block.0.attention.k_pages", DType::kQ8_0, 2, 64},
                   {"block.0.attention.v_pages", DType::kQ8_0, 2, 32}};
  return header;
}

// Only the last of its 3 positions has keys and values of the second state.
SequenceHeader sample_sequence_with_window() {
  SequenceHeader header = sample_sequence();
  header.states[1].is_window = true;
  header.window_from = 2;
  return header;
}

// The states of two recurrent layers are those after its 3 positions.
SequenceHeader sample_sequence_with_states() {
  SequenceHeader header = sample_sequence_with_window();
  header.rows = {{"block.1.mixer.conv_rows", {DType::kF32, {3, 5}}}, {"block.1.mixer.scan_rows", {DType::kF32, {2, 4, 3}}}};
  return header;
}

Status save_sample_sequence(const SequenceHeader& header, const std::string& path) {
  std::vector<std::byte> rows(static_cast<size_t>(header.all_row_bytes() + header.state_bytes()));
  TSR_RETURN_IF_ERROR(sample_bytes("rows", rows));
  TSR_ASSIGN_OR_RETURN(SequenceFileWriter file, SequenceFileWriter::create(path, header));
  TSR_RETURN_IF_ERROR(file.append(rows));
  return file.commit();
}

}  // namespace

TEST_CASE("samples_can_be_written_for_a_new_format" * doctest::test_suite("on request")) {
  const char* folder = std::getenv("TESSERA_WRITE_SAMPLES");
  REQUIRE_MESSAGE(folder != nullptr, "TESSERA_WRITE_SAMPLES names the folder to write to");
  const std::string to = std::string(folder) + "/";
  CHECK(save_model(sample_model(), to + "model-1.tsr").ok());
  CHECK(save_model(sample_model(), to + "model-1-zstd.tsr", {true}).ok());
  CHECK(save_model(sample_model_with_pipeline(), to + "model-1-pipeline.tsr").ok());
  CHECK(save_checkpoint(to + "checkpoint-1", sample_checkpoint(), sample_bytes).ok());
  CHECK(save_checkpoint(to + "checkpoint-3", sample_checkpoint_over_a_base(), sample_bytes).ok());
  CHECK(save_sample_sequence(sample_sequence(), to + "sequence-1.sequence").ok());
  CHECK(save_sample_sequence(sample_sequence_of_blocks(), to + "sequence-1-q8_0.sequence").ok());
  CHECK(save_sample_sequence(sample_sequence_with_window(), to + "sequence-2.sequence").ok());
  CHECK(save_sample_sequence(sample_sequence_with_states(), to + "sequence-3.sequence").ok());
}

TEST_CASE("samples_of_sequences_load") {
  for (const auto& [name, wanted, row_bytes] :
       {std::tuple("sequence-1.sequence", sample_sequence(), 3 * (2 * 4 * 4 + 2 * 3 * 2)),
        std::tuple("sequence-1-q8_0.sequence", sample_sequence_of_blocks(), 3 * (2 * 2 * 34 + 2 * 34)),
        std::tuple("sequence-2.sequence", sample_sequence_with_window(), 3 * 2 * 4 * 4 + 2 * 3 * 2),
        std::tuple("sequence-3.sequence", sample_sequence_with_states(),
                   3 * 2 * 4 * 4 + 2 * 3 * 2 + (3 * 5 + 2 * 4 * 3) * 4)}) {
    CAPTURE(name);
    auto file = SequenceFileReader::open(sample(name));
    REQUIRE_MESSAGE(file.ok(), file.status().to_string());
    CHECK(file->header().model == wanted.model);
    CHECK(file->header().root == wanted.root);
    CHECK(file->header().states == wanted.states);
    CHECK(file->header().rows == wanted.rows);
    CHECK(file->header().tokens == wanted.tokens);
    CHECK(file->header().cached == wanted.cached);
    CHECK(file->header().window_from == wanted.window_from);
    std::vector<std::byte> rows(static_cast<size_t>(row_bytes)), expected(rows.size());
    REQUIRE(sample_bytes("rows", expected).ok());
    REQUIRE(file->read_rows(std::span(rows).first(50)).ok());
    REQUIRE(file->read_rows(std::span(rows).subspan(50)).ok());
    CHECK(file->check().ok());
    CHECK(rows == expected);
  }
}

TEST_CASE("samples_of_models_load") {
  for (const char* name : {"model-1.tsr", "model-1-zstd.tsr"}) {
    CAPTURE(name);
    auto model = load_model(sample(name));
    REQUIRE_MESSAGE(model.ok(), model.status().to_string());
    CHECK(verify_checksums(sample(name)).ok());
    CHECK(model->graph.verify().ok());
    CHECK(model->metadata.at("name") == "small");
    CHECK(model->parameters.size() == 21);
    for (const auto& [parameter, tensor] : sample_model().parameters) {
      CHECK(std::ranges::equal(model->parameters.at(parameter).data, tensor.data));
    }
    REQUIRE(model->tokenizer.has_value());
    auto tokenizer = Tokenizer::create(*model->tokenizer);
    REQUIRE(tokenizer.ok());
    CHECK(*(*tokenizer)->encode("abab") == std::vector<int32_t>{7, 6});
  }
}

TEST_CASE("the_sample_of_a_pipeline_loads") {
  auto model = load_model(sample("model-1-pipeline.tsr"));
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  REQUIRE(model->tokenizer.has_value());
  auto tokenizer = Tokenizer::create(*model->tokenizer);
  REQUIRE_MESSAGE(tokenizer.ok(), tokenizer.status().to_string());
  const EncodeOptions special{.parse_special = true};
  CHECK(*(*tokenizer)->encode("<s> ABab b</s>", special) == std::vector<int32_t>{5, 4, 3, 2, 1, 6});
  CHECK((*tokenizer)->decode(std::vector<int32_t>{5, 4, 3, 2, 1, 6}) == "abab b");
  CHECK((*tokenizer)->before_text()[0] == 5);
  CHECK((*tokenizer)->data().end_ids == std::vector<int32_t>{6});
}

TEST_CASE("samples_of_checkpoints_load") {
  for (const auto& [name, wanted] : {std::pair("checkpoint-1", sample_checkpoint()),
                                     std::pair("checkpoint-3", sample_checkpoint_over_a_base())}) {
    CAPTURE(name);
    auto reader = CheckpointReader::open(sample(name));
    REQUIRE_MESSAGE(reader.ok(), reader.status().to_string());
    CHECK(reader->info().step == wanted.step);
    CHECK(reader->info().values == wanted.values);
    CHECK(reader->info().tensors == wanted.tensors);
    CHECK(reader->info().base == wanted.base);
    for (const auto& [tensor_name, type] : wanted.tensors) {
      auto tensor = reader->read(tensor_name);
      REQUIRE_MESSAGE(tensor.ok(), tensor.status().to_string());
      std::vector<std::byte> expected(tensor->data.size());
      REQUIRE(sample_bytes(tensor_name, expected).ok());
      CHECK(std::ranges::equal(tensor->data, expected));
    }
  }
}
