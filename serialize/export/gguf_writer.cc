#include "serialize/export/gguf_writer.h"

#include <cstring>
#include <optional>

#include "graph/base/text.h"

namespace tessera {
namespace {

constexpr uint32_t kVersion = 3;
constexpr size_t kLongestName = 63;
constexpr size_t kMostDims = 4;

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof value);
}

void put_text(std::string& out, std::string_view text) {
  put(out, uint64_t{text.size()});
  out += text;
}

uint64_t aligned(uint64_t position) {
  return (position + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

std::optional<uint32_t> type_id(DType type) {
  constexpr uint32_t kIds = 64;
  for (uint32_t id = 0; id < kIds; ++id)
    if (gguf_tensor_type(id) == type) return id;
  return std::nullopt;
}

}  // namespace

void GgufWriter::head(std::string_view key, GgufType type) {
  put_text(keys_, key);
  put(keys_, static_cast<uint32_t>(type));
  ++count_;
}

void GgufWriter::u32(std::string_view key, int64_t value) {
  head(key, GgufType::kU32);
  put(keys_, static_cast<uint32_t>(value));
}

void GgufWriter::i32(std::string_view key, int64_t value) {
  head(key, GgufType::kI32);
  put(keys_, static_cast<int32_t>(value));
}

void GgufWriter::f32(std::string_view key, double value) {
  head(key, GgufType::kF32);
  put(keys_, static_cast<float>(value));
}

void GgufWriter::flag(std::string_view key, bool value) {
  head(key, GgufType::kBool);
  put(keys_, static_cast<uint8_t>(value ? 1 : 0));
}

void GgufWriter::text(std::string_view key, std::string_view value) {
  head(key, GgufType::kString);
  put_text(keys_, value);
}

void GgufWriter::array(std::string_view key, GgufType element, size_t count) {
  head(key, GgufType::kArray);
  put(keys_, static_cast<uint32_t>(element));
  put(keys_, uint64_t{count});
}

void GgufWriter::flags(std::string_view key, const std::vector<bool>& values) {
  array(key, GgufType::kBool, values.size());
  for (const bool value : values) put(keys_, static_cast<uint8_t>(value ? 1 : 0));
}

void GgufWriter::texts(std::string_view key, std::span<const std::string> values) {
  array(key, GgufType::kString, values.size());
  for (const std::string& value : values) put_text(keys_, value);
}

void GgufWriter::floats(std::string_view key, std::span<const float> values) {
  array(key, GgufType::kF32, values.size());
  for (const float value : values) put(keys_, value);
}

void GgufWriter::integers(std::string_view key, std::span<const int32_t> values) {
  array(key, GgufType::kI32, values.size());
  for (const int32_t value : values) put(keys_, value);
}

void GgufWriter::byte_array(std::string_view key, std::string_view values) {
  array(key, GgufType::kU8, values.size());
  keys_ += values;
}

void GgufWriter::append(const GgufWriter& others) {
  keys_ += others.keys_;
  count_ += others.count_;
}

Result<TensorFile> GgufWriter::finish(std::vector<TensorSource> tensors) const {
  std::string table;
  uint64_t at = 0;  // within the data
  std::vector<uint64_t> offsets;
  for (const TensorSource& tensor : tensors) {
    const auto dims = tensor.type.shape.dims();
    const std::optional<uint32_t> type = type_id(tensor.type.dtype);
    if (!type && is_block_type(tensor.type.dtype))
      return Status(
          StatusCode::kUnsupported,
          format("tensor '{}' is {}, a type that GGUF has not: export it in another, such as q4_k_m "
                 "(option type)",
                 tensor.name, tensor.type));
    if (!type || dims.size() > kMostDims || tensor.name.size() > kLongestName)
      return Status(StatusCode::kUnsupported,
                    format("tensor '{}' is {}, which GGUF has not (names of up to {} bytes, {} dims)",
                           tensor.name, tensor.type, kLongestName, kMostDims));
    put_text(table, tensor.name);
    put(table, static_cast<uint32_t>(dims.size()));
    for (size_t i = dims.size(); i > 0; --i) put(table, static_cast<uint64_t>(dims[i - 1]));
    put(table, *type);
    put(table, at);
    offsets.push_back(at);
    at = aligned(at + static_cast<uint64_t>(bytes(tensor.type)));
  }
  TensorFile file;
  file.header = "GGUF";
  put(file.header, kVersion);
  put(file.header, uint64_t{tensors.size()});
  put(file.header, count_);
  file.header += keys_ + table;
  file.header.resize(aligned(file.header.size()), '\0');
  for (size_t i = 0; i < tensors.size(); ++i)
    file.tensors.push_back({std::move(tensors[i]), file.header.size() + offsets[i]});
  file.bytes = file.header.size() + at;
  return file;
}

}  // namespace tessera
