// Limits: every model that can be built can be stored, every stored one can be read, and refusals come before any write.
#include "serialize/file_limits.h"

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>

#include "graph/base/text.h"
#include "graph/limits.h"
#include "graph/models/model_family.h"
#include "serialize/checkpoint.h"
#include "serialize/envelope.h"
#include "serialize/model.h"
#include "tests/saved_checkpoint.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/serialize/test_data.h"
#include "tests/whole_model.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

// A chain of `nodes` nodes over one input.
Graph chain(size_t nodes) {
  Graph graph;
  TensorId last = graph.add_tensor("x", {DType::kF32, {2}}, TensorKind::kInput).value();
  for (size_t i = 0; i < nodes; ++i) last = graph.add("scale", {last}, {{"factor", 0.5}}).value();
  REQUIRE(graph.add_output("y", last).ok());
  return graph;
}

Graph with_outputs(size_t count) {
  Graph graph = chain(1);
  for (size_t i = 1; i < count; ++i)
    REQUIRE(graph.add_output(format("y{}", i), TensorId{static_cast<uint32_t>(i % 2)}).ok());
  return graph;
}

Graph with_symbols(size_t count) {
  Graph graph = chain(1);
  for (size_t i = 0; i < count; ++i) graph.symbol(format("S{}", i));
  return graph;
}

// Saved to `path` and read again: the index's size, or 0 where it was refused and nothing is left behind.
uint64_t saved_index_bytes(const Model& model, const std::string& path, SaveOptions options = {}) {
  const Status saved = save_model(model, path, options);
  INFO(saved.to_string());
  if (!saved.ok()) {
    CHECK(saved.code() == StatusCode::kUnsupported);
    CHECK(!std::filesystem::exists(path));
    return 0;
  }
  const auto loaded = load_model(path);
  REQUIRE_MESSAGE(loaded.ok(), loaded.status().to_string());
  CHECK(loaded->graph.fingerprint() == model.graph.fingerprint());
  CHECK(loaded->graph.tensors().size() == model.graph.tensors().size());
  CHECK(loaded->graph.outputs().size() == model.graph.outputs().size());
  CHECK(loaded->graph.symbols().size() == model.graph.symbols().size());
  Envelope envelope;
  const std::string bytes = read_text_file(path);
  std::memcpy(&envelope, bytes.data(), sizeof envelope);
  return envelope.index_bytes;
}

}  // namespace

TEST_CASE("graphs_up_to_the_limits_of_a_file_come_back_and_larger_ones_are_refused_before_writing") {
  ScratchFolder folder;
  const std::string path = folder / "m.tsr";
  Model model;
  for (const size_t nodes : {size_t{65535}, size_t{70000}}) {  // an older reader took 65,536 tensors
    model.graph = chain(nodes);
    CHECK(saved_index_bytes(model, path) > 0);
  }
  for (const size_t outputs : {size_t{1025}, kMaxFileOutputs}) {
    model.graph = with_outputs(outputs);
    CHECK(saved_index_bytes(model, path) > 0);
  }
  for (const size_t symbols : {size_t{65}, kMaxFileSymbols}) {
    model.graph = with_symbols(symbols);
    CHECK(saved_index_bytes(model, path) > 0);
  }
  std::filesystem::remove(path);
  model.graph = with_outputs(kMaxFileOutputs + 1);
  CHECK(saved_index_bytes(model, path) == 0);
  model.graph = with_symbols(kMaxFileSymbols + 1);
  CHECK(saved_index_bytes(model, path) == 0);
  model.graph = chain(1);
  model.metadata["notes"] = std::string(size_t{1} << 10, 'x');
  CHECK(saved_index_bytes(model, path) > 0);
}

TEST_CASE("the_largest_tensors_that_a_graph_takes_come_back") {
  ScratchFolder folder;
  Model model;
  REQUIRE(model.graph.add_tensor("x", {DType::kF64, {kMaxTensorElements}}, TensorKind::kInput).ok());
  REQUIRE(model.graph.add_tensor(std::string(kMaxTensorNameBytes, 'n'), {DType::kF32, {1}}, TensorKind::kInput).ok());
  CHECK(saved_index_bytes(model, folder / "m.tsr") > 0);
  CHECK(!model.graph.add_tensor("y", {DType::kF64, {kMaxTensorElements + 1}}, TensorKind::kInput).ok());
}

TEST_CASE("the_bound_on_an_index_is_above_its_size_and_not_far") {
  ScratchFolder folder;
  std::vector<Model> models(1);
  models[0].graph = chain(300);
  for (const bool tied : {false, true}) models.push_back(import_gguf(source_of(small_llama(tied).finish())).value());
  for (const ModelFamily& family : all_model_families()) {
    Model model;
    model.graph = build_model(parse_shorthand(family.example).value()).value();
    model.metadata = {{"", ""}, {"key", "value"}, {"long", std::string(5000, 'x')}};
    models.push_back(std::move(model));
  }
  for (const Model& model : models)
    for (const bool compress : {false, true}) {
      const uint64_t found = saved_index_bytes(model, folder / "m.tsr", {compress});
      CAPTURE(found);
      CHECK(found <= index_bytes_bound(model));
      CHECK(index_bytes_bound(model) <= 12 * found + 4096);
    }
  CheckpointInfo checkpoint;
  checkpoint.values = {{"a", "b"}, {"c", ""}};
  for (int i = 0; i < 300; ++i) checkpoint.tensors.push_back({format("t{}", i), {DType::kF32, {i % 3, 5}}});
  const auto zeros = [](std::string_view, std::span<std::byte>) { return Status(); };
  REQUIRE(save_checkpoint(folder / "c", checkpoint, zeros).ok());
  CHECK(std::filesystem::file_size(folder / "c" + "/manifest") <=
        index_bytes_bound(checkpoint) + sizeof(Envelope));
}

TEST_CASE("checkpoints_of_more_files_than_are_read_are_refused_before_writing") {
  ScratchFolder folder;
  CheckpointInfo checkpoint;
  const auto never = [](std::string_view, std::span<std::byte>) -> Status {
    FAIL("a tensor was asked for");
    return {};
  };
  checkpoint.tensors = {{"huge", {DType::kF32, {int64_t{1} << 46}}}};
  const Status refused = save_checkpoint(folder / "c", checkpoint, never);
  CHECK(refused.code() == StatusCode::kUnsupported);
  CHECK(refused.message().find("more than 65536 files") != std::string_view::npos);
  CHECK(!std::filesystem::exists(folder / "c"));
}
