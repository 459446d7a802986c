// GgufEditor: a GGUF file taken apart, changed, and put together again.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tests/serialize/exported_model.h"
#include "tests/serialize/gguf_builder.h"

namespace tessera::testing {

class GgufEditor {
 public:
  struct Tensor {
    std::string name;
    uint32_t type = 0;
    std::vector<uint64_t> dims;  // ne0 first
    std::string bytes;
  };

  explicit GgufEditor(std::string_view file) : rest_(file) {
    take_bytes(8);  // magic and version
    const auto tensor_count = take<uint64_t>(), value_count = take<uint64_t>();
    for (uint64_t i = 0; i < value_count; ++i) {
      std::string key = take_text();
      const std::string_view before = rest_;
      skip_value(take<uint32_t>());
      values_.push_back({std::move(key), std::string(before.substr(0, before.size() - rest_.size()))});
    }
    std::vector<uint64_t> offsets;
    for (uint64_t i = 0; i < tensor_count; ++i) {
      Tensor tensor{take_text(), 0, std::vector<uint64_t>(take<uint32_t>()), {}};
      for (uint64_t& dim : tensor.dims) dim = take<uint64_t>();
      tensor.type = take<uint32_t>();
      offsets.push_back(take<uint64_t>());
      tensors_.push_back(std::move(tensor));
    }
    constexpr size_t kAlignment = 32;
    const size_t data = (file.size() - rest_.size() + kAlignment - 1) / kAlignment * kAlignment;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      int64_t elements = 1;
      for (const uint64_t dim : tensors_[i].dims) elements *= static_cast<int64_t>(dim);
      tensors_[i].bytes = file.substr(
          data + offsets[i], static_cast<size_t>(dtype_bytes(*gguf_tensor_type(tensors_[i].type), elements)));
    }
  }

  // Renames the architecture, and with it the keys behind its name.
  GgufEditor& rename_architecture(const std::string& from, const std::string& to) {
    for (Value& value : values_)
      if (value.key.starts_with(from + ".")) value.key.replace(0, from.size(), to);
    erase("general.architecture");
    return add([&](GgufBuilder& w) { w.text("general.architecture", to); });
  }
  bool has(std::string_view key) const {
    return std::ranges::find(values_, key, &Value::key) != values_.end();
  }
  GgufEditor& erase(std::string_view key) {
    CHECK(std::erase_if(values_, [&](const Value& value) { return value.key == key; }) == 1);
    return *this;
  }
  // The keys whose values are whole numbers, flags, or lists.
  std::vector<std::string> number_keys() const {
    std::vector<std::string> keys;
    for (const Value& value : values_) {
      uint32_t type = 0;
      std::memcpy(&type, value.bytes.data(), sizeof type);
      if (type != 6 && type != 8 && !value.key.starts_with("general.")) keys.push_back(value.key);
    }
    return keys;
  }
  // A key that the file has, or has not, with another value.
  GgufEditor& set(std::string_view key, uint64_t value) {
    drop(key);
    return add([&](GgufBuilder& w) { w.scalar(key, 10, value); });
  }
  GgufEditor& set_real(std::string_view key, float value) {
    drop(key);
    return add([&](GgufBuilder& w) { w.f32(key, value); });
  }
  GgufEditor& set_list(std::string_view key, const std::vector<int32_t>& values) {
    drop(key);
    return add([&](GgufBuilder& w) { w.numbers(key, 5, values); });
  }
  GgufEditor& set_flags(std::string_view key, const std::vector<uint8_t>& values) {
    drop(key);
    return add([&](GgufBuilder& w) { w.numbers(key, 7, values); });
  }

  std::vector<Tensor>& tensors() { return tensors_; }
  Tensor& tensor(std::string_view name) {
    const auto found = std::ranges::find(tensors_, name, &Tensor::name);
    REQUIRE_MESSAGE(found != tensors_.end(), std::string(name));
    return *found;
  }
  GgufEditor& erase_tensor(std::string_view name) {
    CHECK(std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; }) == 1);
    return *this;
  }
  GgufEditor& add_tensor(std::string name, std::vector<uint64_t> dims, const std::vector<float>& values) {
    tensors_.push_back({std::move(name),
                        0,
                        std::move(dims),
                        {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}});
    return *this;
  }

  std::string finish() const {
    GgufBuilder w = added_;
    for (const Value& value : values_) w.metadata_bytes(text_bytes(value.key) + value.bytes);
    for (const Tensor& tensor : tensors_) w.tensor(tensor.name, tensor.type, tensor.dims, tensor.bytes);
    return w.finish();
  }

 private:
  struct Value {
    std::string key, bytes;  // bytes: its type, and what follows
  };

  template <class Add>
  GgufEditor& add(Add&& adds) {
    adds(added_);
    return *this;
  }
  void drop(std::string_view key) {
    std::erase_if(values_, [&](const Value& value) { return value.key == key; });
  }
  static std::string text_bytes(std::string_view text) {
    const uint64_t size = text.size();
    return std::string(reinterpret_cast<const char*>(&size), sizeof size) + std::string(text);
  }
  std::string_view take_bytes(size_t count) {
    REQUIRE(count <= rest_.size());
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return bytes;
  }
  template <class T>
  T take() {
    T value;
    std::memcpy(&value, take_bytes(sizeof value).data(), sizeof value);
    return value;
  }
  std::string take_text() { return std::string(take_bytes(take<uint64_t>())); }
  void skip_value(uint32_t type) {
    constexpr uint32_t kText = 8, kArray = 9;
    constexpr size_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == kText) {
      take_text();
    } else if (type == kArray) {
      const auto element = take<uint32_t>();
      const auto count = take<uint64_t>();
      for (uint64_t i = 0; i < count; ++i) skip_value(element);
    } else {
      take_bytes(kBytes[type]);
    }
  }

  std::string_view rest_;  // of the file; only while it is taken apart
  std::vector<Value> values_;
  std::vector<Tensor> tensors_;
  GgufBuilder added_;
};

// The GGUF file of a model with values (exported_model.h).
inline std::string gguf_bytes(const std::string& shorthand) {
  const ScratchFolder scratch;
  write_gguf(model_of(shorthand), scratch / "model.gguf");
  return read_text_file(scratch / "model.gguf");
}

inline Result<OpenedModel> open_bytes(std::string_view file) { return open_model(source_of(file)); }

}  // namespace tessera::testing
