// Quantised tensors of folders for tests: their bytes, files of them, and what becomes of both.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/half.h"
#include "serialize/import/quantized_folder.h"
#include "serialize/import/safetensors.h"
#include "tests/serialize/safetensors_writer.h"

namespace tessera {

template <class T>
inline std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

inline std::string f16_bytes(const std::vector<float>& values) {
  std::vector<uint16_t> halves;
  for (const float value : values) halves.push_back(f16_from_f32(value));
  return bytes_of(halves);
}

inline ForeignFile tensors_of(const testing::SafetensorsWriter& writer) {
  const auto bytes = std::make_shared<std::string>(writer.finish());
  ForeignFile file;
  file.source = bytes_in_memory(std::as_bytes(std::span(bytes->data(), bytes->size())), bytes);
  auto tensors = read_safetensors(*file.source, 0);
  REQUIRE_MESSAGE(tensors.ok(), tensors.status().to_string());
  file.tensors = std::move(*tensors);
  return file;
}

inline FolderQuantization quantization(std::string_view text) {
  const auto json = parse_json(text, "quantization_config");
  REQUIRE(json.ok());
  const auto found = read_folder_quantization(*json);
  REQUIRE_MESSAGE(found.ok(), found.status().to_string());
  return *found;
}

inline Status status_of(std::string_view quantization_json, ForeignFile file) {
  return decode_quantized_tensors(quantization(quantization_json), file).status();
}

inline void check_says(const Status& status, std::string_view words) {
  CAPTURE(status.to_string());
  CHECK(!status.ok());
  CHECK(status.message().find(words) != std::string_view::npos);
}

}  // namespace tessera
