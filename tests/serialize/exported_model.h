// Models with values, their exports, and what is read of these again.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/models/model_family.h"
#include "serialize/export/gguf_export.h"
#include "serialize/export/huggingface_export.h"
#include "serialize/model.h"
#include "serialize/opened_model.h"
#include "tests/serialize/test_data.h"

namespace tessera::testing {

inline bool is_norm(std::string_view name) { return name.find("norm") != name.npos && !name.ends_with(".bias"); }

// Values of few bits, so that one more or less is exact; norms are near 1, factors of rotations above 0.
inline OpenedModel model_of(const std::string& shorthand) {
  const auto config = parse_shorthand(shorthand);
  REQUIRE(config.ok());
  auto graph = build_model(*config);
  REQUIRE_MESSAGE(graph.ok(), graph.status().to_string());
  OpenedModel opened;
  opened.model.graph = std::move(*graph);
  opened.model.metadata = {
      {"architecture", config->family}, {"description", to_text(*config)}, {"name", "small"}};
  uint32_t state = 1;
  for (const TensorId id : opened.model.graph.tensors_of_kind(TensorKind::kParameter)) {
    const Tensor& tensor = opened.model.graph.tensor(id);
    std::vector<float> values(static_cast<size_t>(tensor.type.shape.elements()));
    for (float& value : values) {
      state = state * 1664525u + 1013904223u;
      value = (static_cast<float>(state >> 24) - 128) / 128;
      if (is_norm(tensor.name)) value = 1 + value / 4;
      if (tensor.name == "rope_factors") value = 1.5f + value;
      if (tensor.name.ends_with(".log_rate")) value = 0;  // whose exponential is exact
    }
    opened.parameters.push_back(
        source_in_memory(tensor.name, HostTensor::copy_of<float>(tensor.type, values)));
  }
  return opened;
}

inline void write(const ExportContents& contents, const std::string& path) {
  if (contents.is_folder) std::filesystem::create_directory(path);
  for (const TensorFile& file : contents.files) {
    if (const size_t slash = file.name.rfind('/'); slash != file.name.npos)
      std::filesystem::create_directory(path + "/" + file.name.substr(0, slash));
    auto writer = TensorFileWriter::create(file, contents.is_folder ? path + "/" + file.name : path);
    REQUIRE(writer.ok());
    while (!writer->is_done()) {
      const Status status = writer->write_slice();
      REQUIRE_MESSAGE(status.ok(), status.to_string());
    }
    CHECK(writer->position() == file.bytes);
    REQUIRE(writer->commit().ok());
  }
  for (const auto& [name, text] : contents.texts) write_text_file(path + "/" + name, text);
}

inline void write_folder(OpenedModel opened, const std::string& path,
                  const HuggingfaceExportSettings& settings = {}) {
  const auto contents = huggingface_contents(opened, settings);
  REQUIRE_MESSAGE(contents.ok(), contents.status().to_string());
  write(*contents, path);
}

inline void write_gguf(OpenedModel opened, const std::string& path, const GgufExportSettings& settings = {}) {
  const auto contents = gguf_contents(opened, settings);
  REQUIRE_MESSAGE(contents.ok(), contents.status().to_string());
  write(*contents, path);
}

inline OpenedModel opened(const std::string& path) {
  auto source = open_model_file(path);
  REQUIRE_MESSAGE(source.ok(), source.status().to_string());
  auto model = open_model(std::move(*source));
  REQUIRE_MESSAGE(model.ok(), model.status().to_string());
  return std::move(*model);
}

inline std::map<std::string, std::vector<float>> values_of(const OpenedModel& model) {
  std::map<std::string, std::vector<float>> all;
  for (const TensorSource& parameter : model.parameters) {
    const auto value = read_whole(parameter);
    REQUIRE(value.ok());
    CHECK(value->type.dtype == DType::kF32);
    all[parameter.name].assign(value->as<float>().begin(), value->as<float>().end());
  }
  return all;
}

inline void check_says(const Status& status, StatusCode code, std::string_view words) {
  CAPTURE(status.to_string());
  CHECK(status.code() == code);
  CHECK(status.message().find(words) != std::string_view::npos);
}

}  // namespace tessera::testing
