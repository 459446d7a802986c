// Quantisation: which type each weight gets, and that slices, threads and packed sources give the bits of the
// whole tensor encoded at once.
#include "serialize/quantization.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "graph/base/blocks/block_codec.h"
#include "graph/base/text.h"
#include "graph/graph_text.h"
#include "graph/models/model_family.h"
#include "graph/transform/weight_storage.h"
#include "serialize/model_writer.h"
#include "serialize/opened_model.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/serialize/test_data.h"
#include "tests/whole_model.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

Model model_of(const std::string& description) {
  auto config = parse_shorthand(description);
  REQUIRE(config.ok());
  auto graph = build_model(*config);
  REQUIRE(graph.ok());
  Model model;
  model.graph = std::move(graph).value();
  model.metadata["architecture"] = config->family;
  return model;
}

TypeChoices choices_of(const std::string& description, const MixSettings& settings) {
  const Model model = model_of(description);
  auto choices = choose_types(model.graph, model.metadata.at("architecture"), settings);
  REQUIRE(choices.ok());
  return std::move(choices).value();
}

// "q6_k q4_k ...": the type of a parameter of each block.
std::string by_layer(const TypeChoices& choices, const std::string& parameter) {
  std::vector<std::string> types;
  for (int layer = 0;; ++layer) {
    const auto found = choices.find(format("block.{}.{}", layer, parameter));
    if (found == choices.end()) return join(types, " ");
    types.push_back(to_text(found->second.type));
  }
}

std::string type_of(const TypeChoices& choices, const std::string& parameter) {
  const auto found = choices.find(parameter);
  return found == choices.end() ? "kept" : to_text(found->second.type);
}

std::vector<float> some_values(size_t count) {
  std::vector<float> values(count);
  uint32_t state = 5;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  return values;
}

// One matmul [rows, columns] whose weight is "w", and its value.
Model matrix_model(int64_t rows, int64_t columns) {
  Model model;
  Graph& graph = model.graph;
  const auto x = graph.add_tensor("x", {DType::kF32, {2, columns}}, TensorKind::kInput);
  const auto w = graph.add_tensor("w", {DType::kF32, {rows, columns}}, TensorKind::kParameter);
  REQUIRE(x.ok());
  REQUIRE(w.ok());
  const auto y = graph.add("matmul", {*x, *w}, {{"trans_w", int64_t{1}}});
  REQUIRE(y.ok());
  REQUIRE(graph.add_output("y", *y).ok());
  return model;
}

std::string bytes_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string read_in_slices(const TensorSource& source, int64_t units) {
  const int64_t all = bytes(source.type), slice = units * source.unit_bytes;
  std::string read;
  std::vector<std::byte> buffer;
  for (int64_t at = 0; at < all; at += slice) {
    buffer.resize(static_cast<size_t>(std::min(slice, all - at)));
    const auto part = source.read(at, buffer);
    REQUIRE(part.ok());
    read += bytes_of(*part);
  }
  return read;
}

// A source that gives whole chunks of `unit` bytes alone, as packed ones do.
TensorSource in_chunks(const HostTensor& value, int64_t unit) {
  TensorSource source{"w", value.type, {}, unit, {}, {}};
  source.read = [value, unit](int64_t offset,
                              std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
    const auto end = static_cast<size_t>(offset) + buffer.size();
    CHECK(offset % unit == 0);
    CHECK((end % static_cast<size_t>(unit) == 0 || end == value.data.size()));
    return value.data.subspan(static_cast<size_t>(offset), buffer.size());
  };
  return source;
}

}  // namespace

TEST_CASE("mixes give weights the types that llama.cpp gives them") {
  // 8 layers; four query heads read a key and value, or one.
  const std::string shared = "llama:L=8,C=256,H=8,KV=2,F=512,V=64,T=16,tied=0";
  const std::string own = "llama:L=8,C=256,H=8,F=512,V=64,T=16,tied=0";
  struct Expected {
    const std::string& description;
    std::string type, q, v, o, down, output, embedding;
  };
  const auto all = [](const std::string& type) {
    std::string list = type;
    for (int i = 1; i < 8; ++i) list += " " + type;
    return list;
  };
  const std::string more_6k = "q6_k q4_k q4_k q6_k q4_k q4_k q6_k q6_k";
  const std::string first_5k = "q5_k q4_k q4_k q4_k q4_k q4_k q4_k q4_k";
  const Expected table[] = {
      {own, "q4_k_m", all("q4_k"), more_6k, all("q4_k"), more_6k, "q6_k", "q4_k"},
      {own, "q4_k", all("q4_k"), more_6k, all("q4_k"), more_6k, "q6_k", "q4_k"},
      {own, "q4_k_s", all("q4_k"), "q5_k q5_k q5_k q5_k q4_k q4_k q4_k q4_k", all("q4_k"), first_5k, "q6_k",
       "q4_k"},
      {own, "q5_k_m", all("q5_k"), "q6_k q5_k q5_k q6_k q5_k q5_k q6_k q6_k", all("q5_k"),
       "q6_k q5_k q5_k q6_k q5_k q5_k q6_k q6_k", "q6_k", "q5_k"},
      {own, "q5_k_s", all("q5_k"), all("q5_k"), all("q5_k"), all("q5_k"), "q6_k", "q5_k"},
      {own, "q3_k_s", all("q3_k"), all("q3_k"), all("q3_k"), all("q3_k"), "q6_k", "q3_k"},
      {own, "q3_k_m", all("q3_k"), "q5_k q5_k q4_k q4_k q4_k q4_k q4_k q4_k", all("q4_k"), all("q4_k"),
       "q6_k", "q3_k"},
      {own, "q3_k_l", all("q3_k"), all("q5_k"), all("q5_k"), all("q5_k"), "q6_k", "q3_k"},
      {own, "q2_k", all("q2_k"), all("q3_k"), all("q3_k"), all("q3_k"), "q6_k", "q2_k"},
      {shared, "q2_k", all("q2_k"), all("q4_k"), all("q3_k"), all("q3_k"), "q6_k", "q2_k"},
      {own, "q2_k_s", all("q2_k"), all("q2_k"), all("q2_k"), "q4_k q2_k q2_k q2_k q2_k q2_k q2_k q2_k",
       "q6_k", "q2_k"},
      {own, "iq4_xs", all("iq4_xs"), all("iq4_xs"), all("iq4_xs"),
       "q5_k iq4_xs iq4_xs iq4_xs iq4_xs iq4_xs iq4_xs iq4_xs", "q6_k", "iq4_xs"},
      {shared, "iq4_nl", all("iq4_nl"), all("q5_k"), all("iq4_nl"),
       "q5_k iq4_nl iq4_nl iq4_nl iq4_nl iq4_nl iq4_nl iq4_nl", "q6_k", "iq4_nl"},
      {own, "q6_k", all("q6_k"), all("q6_k"), all("q6_k"), all("q6_k"), "q6_k", "q6_k"},
      {own, "q4_0", all("q4_0"), all("q4_0"), all("q4_0"), all("q4_0"), "q6_k", "q4_0"},
      {own, "q8_0", all("q8_0"), all("q8_0"), all("q8_0"), all("q8_0"), "q8_0", "q8_0"},
      {own, "tq2_0", all("tq2_0"), all("tq2_0"), all("tq2_0"), all("tq2_0"), "q6_k", "q4_k"},
      {own, "mxfp4", all("mxfp4"), all("mxfp4"), all("mxfp4"), all("mxfp4"), "q8_0", "mxfp4"},
      {own, "nf4", all("nf4"), all("nf4"), all("nf4"), all("nf4"), "q8_0", "nf4"},
      {own, "f16", all("f16"), all("f16"), all("f16"), all("f16"), "f16", "f16"},
  };
  for (const Expected& it : table) {
    CAPTURE(it.type);
    const TypeChoices choices = choices_of(it.description, {.type = it.type});
    CHECK(by_layer(choices, "q") == it.q);
    CHECK(by_layer(choices, "v") == it.v);
    CHECK(by_layer(choices, "o") == it.o);
    CHECK(by_layer(choices, "down") == it.down);
    CHECK(type_of(choices, "output") == it.output);
    CHECK(type_of(choices, "token_embedding") == it.embedding);
    CHECK(type_of(choices, "block.0.ffn_norm") == "kept");
  }
  // With importance the first layers' 4-bit types change, and IQ4 stays.
  CHECK(by_layer(choices_of(own, {.type = "q4_0", .has_importance = true}), "down") ==
        "q4_1 q4_0 q4_0 q4_0 q4_0 q4_0 q4_0 q4_0");
  CHECK(by_layer(choices_of(own, {.type = "iq4_nl", .has_importance = true}), "down") == all("iq4_nl"));
}

TEST_CASE("heads, embeddings and experts have rules of their own") {
  const std::string tied = "llama:L=1,C=256,H=4,F=256,V=64,T=16,tied=1";
  const std::string untied = "llama:L=1,C=256,H=4,F=256,V=64,T=16,tied=0";
  CHECK(type_of(choices_of(tied, {.type = "q4_k_m"}), "token_embedding") == "q6_k");
  CHECK(type_of(choices_of(tied, {.type = "q4_k_m", .pure = true}), "token_embedding") == "q4_k");
  CHECK(type_of(choices_of(tied, {.type = "q4_0", .output_type = DType::kQ5_K}), "token_embedding") ==
        "q5_k");
  const TypeChoices chosen =
      choices_of(untied, {.type = "q4_0", .output_type = DType::kBF16, .embedding_type = DType::kQ8_0});
  CHECK(type_of(chosen, "output") == "bf16");
  CHECK(type_of(chosen, "token_embedding") == "q8_0");
  // GPT-2: query, key and value are one tensor in llama.cpp, with the value's rule; positions are no weight.
  const TypeChoices gpt2 = choices_of("gpt2:L=8,C=256,H=4,V=64,T=16", {.type = "q4_k_m"});
  CHECK(by_layer(gpt2, "q.weight") == "q6_k q4_k q4_k q6_k q4_k q4_k q6_k q6_k");
  CHECK(by_layer(gpt2, "proj.weight") == "q6_k q4_k q4_k q6_k q4_k q4_k q6_k q6_k");
  CHECK(type_of(gpt2, "position_embedding") == "kept");
  CHECK(type_of(gpt2, "block.0.q.bias") == "kept");
  // Eight experts; the router stays.
  const TypeChoices moe = choices_of("moe:L=2,C=256,H=4,F=256,E=8,V=64,T=16", {.type = "q4_k_m"});
  CHECK(by_layer(moe, "v") == "q8_0 q8_0");
  CHECK(by_layer(moe, "k") == "q8_0 q8_0");
  CHECK(by_layer(moe, "o") == "q5_k q5_k");
  CHECK(type_of(moe, "block.0.router") == "kept");
  CHECK(by_layer(moe, "experts.up") == "q4_k q4_k");
  CHECK(by_layer(moe, "experts.down") == "q4_k q6_k");
}

TEST_CASE("rows that are no multiple of a block get another type") {
  CHECK(fit_type(DType::kQ4_K, 512) == DType::kQ4_K);
  CHECK(fit_type(DType::kQ4_K, 576) == DType::kQ5_0);
  CHECK(fit_type(DType::kQ5_K, 576) == DType::kQ5_1);
  CHECK(fit_type(DType::kQ6_K, 576) == DType::kQ8_0);
  CHECK(fit_type(DType::kQ2_K, 576) == DType::kQ4_0);
  CHECK(fit_type(DType::kIQ4_XS, 576) == DType::kIQ4_NL);
  CHECK(fit_type(DType::kTQ1_0, 576) == DType::kQ4_0);
  CHECK(fit_type(DType::kQ4_K, 40) == DType::kF16);
  CHECK(fit_type(DType::kQ8_0, 40) == DType::kF16);
  CHECK(fit_type(DType::kBF16, 41) == DType::kBF16);
  const TypeChoices choices = choices_of("llama:L=1,C=96,H=2,F=256,V=64,T=16,tied=0", {.type = "q4_k_m"});
  CHECK(choices.at("block.0.q").type == DType::kQ5_0);
  CHECK(choices.at("block.0.q").wanted == DType::kQ4_K);
  CHECK(choices.at("block.0.down").type == DType::kQ6_K);
  CHECK(choices.at("output").type == DType::kQ8_0);
}

TEST_CASE("unknown types name the nearest, and types without an encoder the reason") {
  const Status unknown = check_mix_name("q4_km");
  CHECK(unknown.code() == StatusCode::kInvalidArgument);
  CHECK(unknown.message().find("'q4_km'; nearest: ") != std::string_view::npos);
  CHECK(unknown.message().find("iq4_xs") != std::string_view::npos);
  const Status alone = check_mix_name("iq2_xs");
  CHECK(alone.code() == StatusCode::kUnsupported);
  CHECK(alone.message().find("can be read and not made") != std::string_view::npos);
  CHECK(encodable_type("q4_k_m").status().code() == StatusCode::kInvalidArgument);
  CHECK(encodable_type("q4_k").value() == DType::kQ4_K);
}

TEST_CASE("slices, threads and packed sources give the bits of the whole tensor") {
  constexpr int64_t kRows = 20, kColumns = 768;
  const Model model = matrix_model(kRows, kColumns);
  const std::vector<float> values = some_values(kRows * kColumns);
  const HostTensor value = HostTensor::copy_of<float>({DType::kF32, {kRows, kColumns}}, values);
  for (const char* type : {"q8_0", "q4_k", "bf16"}) {
    const DType to = *encodable_type(type);
    std::vector<std::byte> whole(static_cast<size_t>(dtype_bytes(to, kRows * kColumns)));
    REQUIRE(encode_blocks(to, values.data(), kRows * kColumns, whole.data()).ok());
    for (const int32_t threads : {1, 3})
      for (const int64_t chunk : {int64_t{1}, int64_t{1000}, int64_t{4} * kColumns})
        for (const int64_t units : {1, 7, 1000}) {
          auto quantization =
              Quantization::create(model, {.mix = {.type = type, .pure = true}, .threads = threads});
          REQUIRE(quantization.ok());
          const TensorSource source = quantization->encode(in_chunks(value, chunk));
          CHECK(read_in_slices(source, units) == bytes_of(whole));
          const QuantizedTensor& tensor = quantization->tensors().at(0);
          CHECK(tensor.error->relative() > 0);
          CHECK(tensor.error->relative() < 0.1);
        }
  }
}

TEST_CASE("importance weighs columns, in slices too") {
  constexpr int64_t kRows = 6, kColumns = 512;
  Model model = matrix_model(kRows, kColumns);
  const std::vector<float> values = some_values(kRows * kColumns);
  std::vector<float> importance(kColumns, 1.0f);
  for (size_t i = 0; i < importance.size(); i += 3) importance[i] = 100;
  GgufBuilder file;
  file.text("general.type", "imatrix");
  std::vector<float> sums = importance;
  for (float& sum : sums) sum *= 4;
  file.tensor_f32("w.in_sum2", {kColumns, 1}, sums).tensor_f32("w.counts", {1, 1}, {4});
  auto matrix = ImportanceMatrix::read(source_of(file.finish()));
  REQUIRE(matrix.ok());
  auto quantization = Quantization::create(
      model, {.mix = {.type = "q4_k", .pure = true},
              .importance = std::make_shared<const ImportanceMatrix>(std::move(matrix).value())});
  REQUIRE(quantization.ok());
  const HostTensor value = HostTensor::copy_of<float>({DType::kF32, {kRows, kColumns}}, values);
  const TensorSource source = quantization->encode(source_in_memory("w", value));
  std::vector<std::byte> whole(static_cast<size_t>(dtype_bytes(DType::kQ4_K, kRows * kColumns)));
  std::vector<std::byte> plain = whole;
  REQUIRE(encode_blocks(DType::kQ4_K, values.data(), kRows * kColumns, whole.data(), importance).ok());
  REQUIRE(encode_blocks(DType::kQ4_K, values.data(), kRows * kColumns, plain.data()).ok());
  CHECK(read_in_slices(source, 1) == bytes_of(whole));
  CHECK(read_in_slices(source, 100) == bytes_of(whole));
  CHECK(bytes_of(plain) != bytes_of(whole));
  CHECK(quantization->tensors().at(0).is_weighted);
}

TEST_CASE("every expert's columns have importance of their own") {
  constexpr int64_t kExperts = 3, kRows = 4, kColumns = 256;
  Model model;
  auto parsed = parse_graph(R"(graph {
    symbol B
    input x: f32[3, B, 2, 256]
    parameter w: f32[3, 4, 256]
    y = expert_matmul(x, w) {trans_w = 1}
    output y = y
  })");
  REQUIRE(parsed.ok());
  model.graph = std::move(parsed).value();
  const std::vector<float> values = some_values(kExperts * kRows * kColumns);
  std::vector<float> importance(kExperts * kColumns, 1.0f);
  for (size_t i = 0; i < importance.size(); i += 3 + i / kColumns) importance[i] = 100;
  GgufBuilder file;
  file.text("general.type", "imatrix");
  file.tensor_f32("w.in_sum2", {kColumns, kExperts}, importance)
      .tensor_f32("w.counts", {1, kExperts}, {1, 1, 1});
  auto matrix = ImportanceMatrix::read(source_of(file.finish()));
  REQUIRE(matrix.ok());
  auto quantization = Quantization::create(
      model, {.mix = {.type = "q4_k", .pure = true},
              .importance = std::make_shared<const ImportanceMatrix>(std::move(matrix).value())});
  REQUIRE(quantization.ok());
  const HostTensor value = HostTensor::copy_of<float>({DType::kF32, {kExperts, kRows, kColumns}}, values);
  const TensorSource source = quantization->encode(source_in_memory("w", value));
  constexpr int64_t kMatrix = kRows * kColumns;
  std::vector<std::byte> whole(static_cast<size_t>(dtype_bytes(DType::kQ4_K, kExperts * kMatrix)));
  for (int64_t e = 0; e < kExperts; ++e)
    REQUIRE(encode_blocks(DType::kQ4_K, values.data() + e * kMatrix, kMatrix,
                          whole.data() + dtype_bytes(DType::kQ4_K, e * kMatrix),
                          std::span(importance).subspan(static_cast<size_t>(e * kColumns), kColumns))
                .ok());
  CHECK(read_in_slices(source, 1) == bytes_of(whole));
  CHECK(read_in_slices(source, 100) == bytes_of(whole));
}

TEST_CASE("a quantised file opens with the types that were chosen, and is quantised again") {
  const ScratchFolder folder;
  Model model = model_of("llama:L=1,C=256,H=2,F=256,V=8,T=16");
  std::vector<TensorSource> sources;
  for (const TensorId id : model.graph.tensors_of_kind(TensorKind::kParameter)) {
    const TensorType& type = model.graph.type(id);
    sources.push_back(source_in_memory(
        model.graph.tensor(id).name,
        HostTensor::copy_of<float>(type, some_values(static_cast<size_t>(type.shape.elements())))));
  }
  std::ranges::sort(sources, {}, &TensorSource::name);
  const auto save = [&](Quantization quantization, const std::string& path) {
    model.graph = quantization.graph();
    auto writer = ModelWriter::create(model, path, {});
    REQUIRE(writer.ok());
    for (const TensorSource& it : sources) REQUIRE((*writer)->write(quantization.encode(it)).ok());
    REQUIRE((*writer)->finish().ok());
    REQUIRE((*writer)->commit().ok());
    return quantization.tensors();
  };
  save(*Quantization::create(model, {.mix = {.type = "q4_k_m"}}), folder / "first.tsr");
  auto opened = open_model(*open_file(folder / "first.tsr"));
  REQUIRE(opened.ok());
  const auto type = [&](const Model& it, const char* name) {
    return it.graph.type(*it.graph.find_tensor(name)).dtype;
  };
  CHECK(type(opened->model, "block.0.q") == DType::kQ4_K);
  CHECK(type(opened->model, "block.0.v") == DType::kQ6_K);
  CHECK(type(opened->model, "output") == DType::kQ6_K);
  CHECK(type(opened->model, "block.0.ffn_norm") == DType::kF32);
  const HostTensor before =
      *read_whole(*std::ranges::find(opened->parameters, "block.0.q", &TensorSource::name));
  // Again: what has the type already keeps its bytes.
  model.graph = opened->model.graph;
  sources = opened->parameters;
  std::ranges::sort(sources, {}, &TensorSource::name);
  const std::vector<QuantizedTensor> tensors =
      save(*Quantization::create(model, {.mix = {.type = "q4_k", .pure = true}}), folder / "second.tsr");
  for (const QuantizedTensor& it : tensors) CHECK((it.error == nullptr) == (it.from.dtype == it.to.dtype));
  const auto second = load_model(folder / "second.tsr");
  REQUIRE(second.ok());
  CHECK(type(*second, "output") == DType::kQ4_K);
  CHECK(bytes_of(second->parameters.at("block.0.q").data) == bytes_of(before.data));
  // Decoded: the graph is the one that it was at first.
  save(*Quantization::create(model, {.mix = {.type = "f32"}}), folder / "wide.tsr");
  CHECK(print(load_model(folder / "wide.tsr")->graph) ==
        print(model_of("llama:L=1,C=256,H=2,F=256,V=8,T=16").graph));
}

TEST_CASE("what cannot be encoded names its tensor, and a damaged source is refused") {
  const Model model = matrix_model(2, 256);
  std::vector<float> values = some_values(512);
  const auto read = [&](std::optional<uint64_t> xxh3) {
    auto quantization = Quantization::create(model, {.mix = {.type = "q4_0"}});
    REQUIRE(quantization.ok());
    TensorSource source = source_in_memory("w", HostTensor::copy_of<float>({DType::kF32, {2, 256}}, values));
    source.xxh3 = xxh3;
    const TensorSource encoded = quantization->encode(std::move(source));
    std::vector<std::byte> buffer(static_cast<size_t>(bytes(encoded.type)));
    return encoded.read(0, buffer).status();
  };
  CHECK(read({}).ok());
  CHECK(read(1).code() == StatusCode::kCorrupt);
  values[300] = std::nanf("");
  CHECK(read({}).code() == StatusCode::kInvalidArgument);
  CHECK(read({}).message().find("tensor 'w': value 300") != std::string_view::npos);
}
