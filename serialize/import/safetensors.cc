#include "serialize/import/safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {
namespace {

constexpr int64_t kMostHeaderBytes = 100'000'000;  // the format's own bound
constexpr size_t kMostDims = kMaxRank;

Status corrupt(std::string message) { return Status(StatusCode::kCorrupt, std::move(message)); }

struct ElementType {
  std::string_view name;
  int64_t bits;
  DType dtype;  // kI64 also stands for types that parameters never have
};
constexpr ElementType kTypes[] = {
    {"F64", 64, DType::kF64},    {"F32", 32, DType::kF32},        {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},  {"I64", 64, DType::kI64},        {"U64", 64, DType::kI64},
    {"I32", 32, DType::kI64},    {"U32", 32, DType::kI64},        {"I16", 16, DType::kI64},
    {"U16", 16, DType::kI64},    {"I8", 8, DType::kI64},          {"U8", 8, DType::kI64},
    {"BOOL", 8, DType::kI64},    {"F8_E4M3", 8, DType::kI64},     {"F8_E5M2", 8, DType::kI64},
    {"F8_E8M0", 8, DType::kI64}, {"F8_E4M3FNUZ", 8, DType::kI64}, {"F8_E5M2FNUZ", 8, DType::kI64},
    {"C64", 64, DType::kI64},    {"F4", 4, DType::kI64},          {"F6_E2M3", 6, DType::kI64},
    {"F6_E3M2", 6, DType::kI64},
};

// HeaderReader: parses the header by SAX events and keeps only what is requested.
//   {"NAME": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, "__metadata__": {"KEY": "TEXT"}}
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  struct Entry {
    std::string name, dtype;
    std::vector<int64_t> shape, offsets;
    bool has_dtype = false, has_shape = false, has_offsets = false;
  };
  std::vector<Entry> entries;
  std::string problem;

  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("true or false"); }
  bool number_float(number_float_t, const string_t&) override { return refuse("a fraction"); }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool number_integer(number_integer_t) override { return refuse("a negative number"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (!is_list_ || depth_ != 3 || value > uint64_t{1} << 62) return refuse(format("the number {}", value));
    std::vector<int64_t>& list = field_ == "shape" ? entries.back().shape : entries.back().offsets;
    if (list.size() >= kMostDims)
      return fail(format("{} of '{}' is longer than {}", field_, quoted(), kMostDims));
    list.push_back(static_cast<int64_t>(value));
    return true;
  }
  bool string(string_t& value) override {
    if (in_metadata_ && depth_ == 2) return true;
    if (depth_ != 2 || field_ != "dtype" || is_list_) return refuse("a text");
    entries.back().dtype = value;
    return true;
  }
  bool start_object(size_t) override {
    if (depth_ >= 2 || is_list_) return refuse("an object");
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    in_metadata_ = false;
    return true;
  }
  bool key(string_t& value) override {
    if (depth_ == 1) {
      in_metadata_ = value == "__metadata__";
      if (!in_metadata_) entries.emplace_back().name = value;
      return true;
    }
    if (in_metadata_) return true;
    field_ = value;
    Entry& entry = entries.back();
    bool* const seen = value == "dtype"          ? &entry.has_dtype
                       : value == "shape"        ? &entry.has_shape
                       : value == "data_offsets" ? &entry.has_offsets
                                                 : nullptr;
    if (seen == nullptr)
      return fail(format("'{}' has a field '{}', wanted dtype, shape, data_offsets", quoted(), quote(value)));
    if (std::exchange(*seen, true)) return fail(format("'{}' has {} twice", quoted(), value));
    return true;
  }
  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || (field_ != "shape" && field_ != "data_offsets"))
      return refuse("a list");
    depth_ = 3;
    is_list_ = true;
    return true;
  }
  bool end_array() override {
    depth_ = 2;
    is_list_ = false;
    return true;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) override {
    return fail(format("it is not JSON at byte {}", at));
  }

 private:
  std::string quoted() const { return entries.empty() ? std::string() : quote(entries.back().name); }
  bool fail(std::string message) {
    if (problem.empty()) problem = std::move(message);
    return false;
  }
  bool refuse(std::string_view what) {
    return fail(format("{} stands where none may{}", what, entries.empty() ? "" : ", at '" + quoted() + "'"));
  }

  int depth_ = 0;
  bool is_list_ = false, in_metadata_ = false;
  std::string field_;
};

Result<ForeignTensor> tensor_of(const HeaderReader::Entry& entry, int64_t data_bytes) {
  if (!entry.has_dtype || !entry.has_shape || !entry.has_offsets || entry.offsets.size() != 2)
    return corrupt(format("tensor '{}' wants dtype, shape and two data_offsets", quote(entry.name)));
  const auto type = std::ranges::find(kTypes, std::string_view(entry.dtype), &ElementType::name);
  if (type == std::end(kTypes))
    return Status(StatusCode::kUnsupported, format("tensor '{}' has dtype '{}', which is not known",
                                                   quote(entry.name), quote(entry.dtype)));
  int64_t bits = type->bits;
  for (const int64_t extent : entry.shape)
    if (__builtin_mul_overflow(bits, extent, &bits))
      return corrupt(format("tensor '{}' has more elements than 64 bits count", quote(entry.name)));
  const int64_t begin = entry.offsets[0], end = entry.offsets[1];
  if (begin > end || end > data_bytes)
    return corrupt(
        format("tensor '{}' is at bytes {} to {} of {}", quote(entry.name), begin, end, data_bytes));
  if (bits % 8 != 0 || end - begin != bits / 8)
    return corrupt(format("tensor '{}' has {} bytes, wanted {} of its dtype {} and shape", quote(entry.name),
                          end - begin, bits / 8, type->name));
  std::string word(type->name);
  std::ranges::transform(word, word.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return ForeignTensor{std::move(word), type->dtype, Shape(std::span<const int64_t>(entry.shape)), begin,
                       end - begin};
}

}  // namespace

Result<ForeignTensors> read_safetensors(const ByteSource& source, int64_t base) {
  uint64_t stated = 0;
  if (source.size() < int64_t{sizeof stated}) return corrupt("a safetensors file of fewer than 8 bytes");
  TSR_RETURN_IF_ERROR(source.read_at(0, std::as_writable_bytes(std::span(&stated, 1))));
  const int64_t rest = source.size() - int64_t{sizeof stated};
  if (stated > static_cast<uint64_t>(kMostHeaderBytes) || static_cast<int64_t>(stated) > rest)
    return corrupt(format("its header has {} bytes, wanted at most {} and no more than the {} that follow",
                          stated, kMostHeaderBytes, rest));
  std::string header(static_cast<size_t>(stated), '\0');
  TSR_RETURN_IF_ERROR(source.read_at(sizeof stated, std::as_writable_bytes(std::span(header))));
  if (header.empty() || header[0] != '{') return corrupt("its header does not begin with '{'");

  HeaderReader reader;
  if (!Json::sax_parse(header, &reader)) return corrupt(format("its header: {}", reader.problem));
  const int64_t data_bytes = rest - static_cast<int64_t>(stated),
                data = base + int64_t{sizeof stated} + static_cast<int64_t>(stated);
  ForeignTensors tensors;
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const HeaderReader::Entry& entry : reader.entries) {
    TSR_ASSIGN_OR_RETURN(ForeignTensor tensor, tensor_of(entry, data_bytes));
    ranges.emplace_back(tensor.offset, tensor.offset + tensor.bytes);
    tensor.offset += data;
    if (!tensors.emplace(entry.name, std::move(tensor)).second)
      return corrupt(format("tensor '{}' is there twice", quote(entry.name)));
  }
  std::ranges::sort(ranges);
  int64_t at = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != at)
      return corrupt(format("its data {} at byte {}: tensors cover all of them, each once",
                            begin > at ? "have a hole" : "overlap", std::min(begin, at)));
    at = end;
  }
  if (at != data_bytes) return corrupt(format("its data have {} bytes, its tensors {}", data_bytes, at));
  return tensors;
}

}  // namespace tessera
