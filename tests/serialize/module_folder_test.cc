// Folders of modelopt: where the factors of NVFP4 go in the graph, and which names patterns are of.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "serialize/opened_model.h"
#include "tests/serialize/safetensors_writer.h"
#include "tests/serialize/test_data.h"
#include "tests/whole_model.h"

namespace tessera {
namespace {

using testing::SafetensorsWriter;
using testing::ScratchFolder;
using testing::write_text_file;

constexpr std::string_view kConfig =
    R"({"model_type":"qwen2","hidden_size":64,"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,)"
    R"("intermediate_size":64,"vocab_size":5,"max_position_embeddings":16,"tie_word_embeddings":true})";

void add_floats(SafetensorsWriter& writer, const std::string& name, int64_t rows, int64_t columns) {
  const std::vector<float> values(static_cast<size_t>(rows * columns), 0.5f);
  writer.f32("language_model.model." + name, columns == 1 ? format("[{}]", rows) : format("[{},{}]", rows, columns), values);
}

// NVFP4 [64, 64]: a scale of 1 for each 16 codes, and a factor of all.
void add_nvfp4(SafetensorsWriter& writer, const std::string& name, float factor) {
  const std::string stem = "language_model.model." + name;
  writer.tensor(stem + ".weight", "U8", "[64,32]", std::string(64 * 32, '\x32'))
      .tensor(stem + ".weight_scale", "F8_E4M3", "[64,4]", std::string(64 * 4, '\x38'))
      .f32(stem + ".weight_scale_2", "[]", std::vector<float>{factor});
}

// q has a bias, o has none, and k belongs to modules left as they are.
std::string weights() {
  SafetensorsWriter writer;
  add_floats(writer, "embed_tokens.weight", 5, 64);
  add_floats(writer, "norm.weight", 64, 1);
  for (const char* const norm : {"input_layernorm", "post_attention_layernorm"})
    add_floats(writer, format("layers.0.{}.weight", norm), 64, 1);
  add_nvfp4(writer, "layers.0.self_attn.q_proj", 0.25f);
  add_nvfp4(writer, "layers.0.self_attn.o_proj", 0.25f);
  add_floats(writer, "layers.0.self_attn.q_proj.bias", 64, 1);
  for (const char* const part : {"k", "v"}) {
    add_floats(writer, format("layers.0.self_attn.{}_proj.weight", part), 32, 64);
    add_floats(writer, format("layers.0.self_attn.{}_proj.bias", part), 32, 1);
  }
  for (const char* const part : {"gate", "up", "down"}) add_nvfp4(writer, format("layers.0.mlp.{}_proj", part), 1);
  return writer.finish();
}

}  // namespace

TEST_CASE("factors_of_nvfp4_scale_products_and_are_in_the_numbers_where_they_cannot") {
  ScratchFolder folder;
  write_text_file(folder / "config.json", std::string(kConfig));
  write_text_file(folder / "model.safetensors", weights());
  write_text_file(folder / "hf_quant_config.json",
                  R"({"quantization":{"quant_algo":"NVFP4","exclude_modules":["language_model.model.layers.0.self_attn.k*"]}})");
  const auto open = [&]() -> Result<OpenedModel> {
    TSR_ASSIGN_OR_RETURN(auto source, open_model_file(folder.path()));
    return open_model(std::move(source));
  };
  auto opened = open();
  REQUIRE_MESSAGE(opened.ok(), opened.status().to_string());
  const Graph& graph = opened->model.graph;
  const auto type = [&](std::string_view name) { return graph.type(graph.find_tensor(name).value()).dtype; };
  CHECK(type("block.0.o") == DType::kNVFP4);
  CHECK(type("block.0.up") == DType::kNVFP4);
  CHECK(type("block.0.q") == DType::kBF16);
  CHECK(type("block.0.k") == DType::kF32);
  CHECK(std::ranges::count_if(graph.nodes(), [&](const Node& node) { return node.op->name == "scale" && attr_f64(node.attrs, "factor") == 0.25; }) == 1);
  const auto model = read_values(std::move(*opened));
  REQUIRE(model.ok());
  const std::span<const uint16_t> q = model->parameters.at("block.0.q").as<uint16_t>();
  CHECK(q[0] == 0x3e80);  // code 2 is 1: 1 * 0.25
  CHECK(q[1] == 0x3ec0);  // code 3 is 1.5

  write_text_file(folder / "hf_quant_config.json",
                  R"({"quantization":{"quant_algo":"NVFP4","exclude_modules":["language_model.model.layers.0.self_attn.o_proj"]}})");
  const auto refused = open();
  CHECK(refused.status().message().find("module 'language_model.model.layers.0.self_attn.o_proj' is not to be quantised") !=
        std::string_view::npos);
}

}  // namespace tessera
