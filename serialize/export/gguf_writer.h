// GgufWriter: the header of a GGUF file, version 3: keys, and the table of tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "serialize/export/tensor_file.h"
#include "serialize/import/gguf_file.h"

namespace tessera {

inline constexpr uint64_t kGgufAlignment = 32;

class GgufWriter {
 public:
  // Each key is written once.
  void u32(std::string_view key, int64_t value);
  void i32(std::string_view key, int64_t value);
  void f32(std::string_view key, double value);
  void flag(std::string_view key, bool value);
  void text(std::string_view key, std::string_view value);
  void texts(std::string_view key, std::span<const std::string> values);
  void floats(std::string_view key, std::span<const float> values);
  void integers(std::string_view key, std::span<const int32_t> values);
  void flags(std::string_view key, const std::vector<bool>& values);
  void byte_array(std::string_view key, std::string_view values);

  void append(const GgufWriter& others);  // appends another writer's keys

  // The file with these keys and `tensors`, in order. kUnsupported for a type or name that the format lacks.
  Result<TensorFile> finish(std::vector<TensorSource> tensors) const;

 private:
  void head(std::string_view key, GgufType type);
  void array(std::string_view key, GgufType element, size_t count);

  std::string keys_;
  uint64_t count_ = 0;
};

}  // namespace tessera
