#include "serialize/importance_matrix.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/atomic_file.h"
#include "serialize/byte_cursor.h"
#include "serialize/import/gguf_file.h"

namespace tessera {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
constexpr int32_t kMostNameBytes = 65535;

Status corrupt(std::string message) { return Status(StatusCode::kCorrupt, std::move(message)); }

Result<std::vector<float>> read_floats(const ByteSource& source, const GgufTensor& tensor) {
  if (gguf_tensor_type(tensor.type) != DType::kF32)
    return corrupt(format("tensor '{}' is {}; an importance matrix holds f32", quote(tensor.name),
                          to_text(*gguf_tensor_type(tensor.type))));
  std::vector<float> values(static_cast<size_t>(tensor.bytes) / sizeof(float));
  TSR_RETURN_IF_ERROR(source.read_at(tensor.offset, std::as_writable_bytes(std::span(values))));
  return values;
}

// Divides sums of squares by the number of input rows of each matrix.
Result<std::vector<float>> means(const GgufTensor& sums_tensor, std::vector<float> sums,
                                 const std::vector<float>& counts) {
  if (counts.empty() || sums.empty() || sums.size() % counts.size() != 0)
    return corrupt(
        format("tensor '{}' has {} sums for {} counts", quote(sums_tensor.name), sums.size(), counts.size()));
  const size_t columns = sums.size() / counts.size();
  for (size_t matrix = 0; matrix < counts.size(); ++matrix) {
    const float count = counts[matrix];
    if (!std::isfinite(count) || count < 0)
      return corrupt(format("tensor '{}' has a count of {}", quote(sums_tensor.name), count));
    for (float& sum : std::span(sums).subspan(matrix * columns, columns)) sum = count > 0 ? sum / count : 1;
  }
  return sums;
}

}  // namespace

Status ImportanceMatrix::add(std::string name, std::vector<float> values) {
  for (size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]) || values[i] < 0)
      return corrupt(
          format("'{}': value {} is {}; a mean of squares is finite, at least 0", quote(name), i, values[i]));
  const auto [entry, is_new] = entries_.emplace(std::move(name), std::move(values));
  return is_new ? Status() : corrupt(format("'{}' appears twice", quote(entry->first)));
}

namespace {

// Calls add(name, values) for each entry.
template <class Add>
Status read_gguf(std::shared_ptr<const ByteSource> source, const Add& add) {
  TSR_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(source));
  TSR_ASSIGN_OR_RETURN(const std::string type, file.text("general.type", "model"));
  if (type != "imatrix")
    return corrupt(format("a GGUF file with general.type '{}'; wanted 'imatrix', as llama-imatrix writes it",
                          quote(type)));
  for (const auto& [name, tensor] : file.tensors()) {
    if (!name.ends_with(kSums)) continue;
    const std::string weight = name.substr(0, name.size() - kSums.size());
    const auto counts = file.tensors().find(weight + std::string(kCounts));
    if (counts == file.tensors().end()) return corrupt(format("'{}' has sums and no counts", quote(weight)));
    TSR_ASSIGN_OR_RETURN(std::vector<float> sums, read_floats(*source, tensor));
    TSR_ASSIGN_OR_RETURN(const std::vector<float> rows, read_floats(*source, counts->second));
    TSR_ASSIGN_OR_RETURN(std::vector<float> values, means(tensor, std::move(sums), rows));
    TSR_RETURN_IF_ERROR(add(weight, std::move(values)));
  }
  return {};
}

// i32 entries; each: i32 length, name, i32 calls, i32 values, f32 values (means
// times calls). The rest (number of calls, the text's name) is optional.
template <class Add>
Status read_without_magic(const ByteSource& source, const Add& add) {
  ByteCursor cursor(source);
  TSR_ASSIGN_OR_RETURN(const int32_t entries, cursor.read<int32_t>("the number of entries"));
  constexpr int64_t kLeastEntry = 3 * sizeof(int32_t) + 1 + sizeof(float);
  if (entries < 1 || entries > cursor.left() / kLeastEntry)
    return corrupt(format("{} entries in {} bytes: no importance matrix, neither GGUF nor the older form",
                          entries, source.size()));
  for (int32_t i = 0; i < entries; ++i) {
    TSR_ASSIGN_OR_RETURN(const int32_t length, cursor.read<int32_t>("a name's length"));
    if (length < 1 || length > kMostNameBytes)
      return corrupt(format("entry {} has a name of {} bytes, wanted 1 to {}", i, length, kMostNameBytes));
    TSR_ASSIGN_OR_RETURN(std::string name, cursor.read_text(static_cast<uint64_t>(length), "a name"));
    TSR_ASSIGN_OR_RETURN(const int32_t calls, cursor.read<int32_t>("a number of calls"));
    TSR_ASSIGN_OR_RETURN(const int32_t count, cursor.read<int32_t>("a number of values"));
    if (count < 1 || count > cursor.left() / static_cast<int64_t>(sizeof(float)))
      return corrupt(
          format("'{}' has {} values, {} bytes are left in the file", quote(name), count, cursor.left()));
    std::vector<float> values(static_cast<size_t>(count));
    TSR_RETURN_IF_ERROR(source.read_at(cursor.position(), std::as_writable_bytes(std::span(values))));
    TSR_RETURN_IF_ERROR(cursor.skip(values.size() * sizeof(float), "values"));
    if (calls > 0)
      for (float& value : values) value /= static_cast<float>(calls);
    TSR_RETURN_IF_ERROR(add(std::move(name), std::move(values)));
  }
  return {};
}

}  // namespace

Result<ImportanceMatrix> ImportanceMatrix::read(std::shared_ptr<const ByteSource> source) {
  ImportanceMatrix matrix;
  const auto add = [&](std::string name, std::vector<float> values) {
    return matrix.add(std::move(name), std::move(values));
  };
  char magic[4] = {};
  if (source->size() >= static_cast<int64_t>(sizeof magic))
    TSR_RETURN_IF_ERROR(source->read_at(0, std::as_writable_bytes(std::span(magic))));
  TSR_RETURN_IF_ERROR(std::memcmp(magic, "GGUF", sizeof magic) == 0 ? read_gguf(source, add)
                                                                    : read_without_magic(*source, add));
  if (matrix.entries_.empty()) return corrupt("an importance matrix without entries");
  return matrix;
}

namespace {

// GgufImage: builds a GGUF file of f32 vectors.
class GgufImage {
 public:
  void add_text(std::string_view key, std::string_view value) {
    add_key(key, GgufType::kString);
    put_text(metadata_, value);
  }
  void add_texts(std::string_view key, std::string_view value) {  // a one-element array
    add_key(key, GgufType::kArray);
    put(metadata_, GgufType::kString);
    put(metadata_, uint64_t{1});
    put_text(metadata_, value);
  }
  void add_number(std::string_view key, uint32_t value) {
    add_key(key, GgufType::kU32);
    put(metadata_, value);
  }
  // [columns, 1]
  void add_tensor(std::string_view name, std::span<const float> values) {
    put_text(tensors_, name);
    put(tensors_, uint32_t{2});
    put(tensors_, uint64_t{values.size()});
    put(tensors_, uint64_t{1});
    put(tensors_, uint32_t{0});  // f32
    put(tensors_, uint64_t{data_.size()});
    data_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
    data_.resize((data_.size() + kAlignment - 1) / kAlignment * kAlignment, '\0');
    ++tensor_count_;
  }
  std::string finish() const {
    std::string file = "GGUF";
    put(file, uint32_t{3});
    put(file, tensor_count_);
    put(file, key_count_);
    file += metadata_ + tensors_;
    file.resize((file.size() + kAlignment - 1) / kAlignment * kAlignment, '\0');
    return file + data_;
  }

 private:
  static constexpr size_t kAlignment = 32;

  template <class T>
  static void put(std::string& out, T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    out.append(bytes, sizeof value);
  }
  static void put_text(std::string& out, std::string_view text) {
    put(out, uint64_t{text.size()});
    out += text;
  }
  void add_key(std::string_view key, GgufType type) {
    put_text(metadata_, key);
    put(metadata_, type);
    ++key_count_;
  }

  uint64_t tensor_count_ = 0, key_count_ = 0;
  std::string metadata_, tensors_, data_;
};

}  // namespace

Status write_importance(const ImportanceSums& sums, const std::string& path) {
  GgufImage image;
  image.add_text("general.type", "imatrix");
  image.add_texts("imatrix.datasets", sums.text);
  image.add_number("imatrix.chunk_count", static_cast<uint32_t>(sums.windows));
  image.add_number("imatrix.chunk_size", static_cast<uint32_t>(sums.window));
  const float rows = static_cast<float>(sums.rows);
  for (const auto& [name, squares] : sums.squares) {
    const std::vector<float> values(squares.begin(), squares.end());
    image.add_tensor(name + std::string(kSums), values);
    image.add_tensor(name + std::string(kCounts), {&rows, 1});
  }
  const std::string bytes = image.finish();
  TSR_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  TSR_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(bytes))));
  return file.commit();
}

std::span<const float> ImportanceMatrix::find(std::string_view tensor) const {
  const auto entry = entries_.find(tensor);
  return entry == entries_.end() ? std::span<const float>() : std::span<const float>(entry->second);
}

}  // namespace tessera
