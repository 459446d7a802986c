// One pass of a bounds-checked cursor over metadata and tensor entries; then the tensors' ranges are checked against each
// other and the file's size.
#include "serialize/import/gguf_file.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <utility>

#include "graph/base/text.h"
#include "serialize/byte_cursor.h"

namespace tessera {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr int kMaxArrayDepth = 4;
constexpr uint64_t kMaxNameBytes = 65535;
constexpr uint32_t kMaxDims = 4;
constexpr int64_t kMaxAlignment = 1 << 20;

constexpr std::pair<uint32_t, DType> kTensorTypes[] = {
    {0, DType::kF32},      {1, DType::kF16},     {2, DType::kQ4_0},     {3, DType::kQ4_1},
    {6, DType::kQ5_0},     {7, DType::kQ5_1},    {8, DType::kQ8_0},     {10, DType::kQ2_K},
    {11, DType::kQ3_K},    {12, DType::kQ4_K},   {13, DType::kQ5_K},    {14, DType::kQ6_K},
    {16, DType::kIQ2_XXS}, {17, DType::kIQ2_XS}, {18, DType::kIQ3_XXS}, {19, DType::kIQ1_S},
    {20, DType::kIQ4_NL},  {21, DType::kIQ3_S},  {22, DType::kIQ2_S},   {23, DType::kIQ4_XS},
    {28, DType::kF64},     {29, DType::kIQ1_M},  {30, DType::kBF16},    {34, DType::kTQ1_0},
    {35, DType::kTQ2_0},   {39, DType::kMXFP4},  {40, DType::kNVFP4},   {41, DType::kQ1_0},
    {42, DType::kQ2_0},
};

// RefusedType: numbers that are no weight types, with reasons.
struct RefusedType {
  uint32_t id;
  std::string_view name, reason;
};
constexpr std::string_view kWithdrawn = "the format has withdrawn it; convert the original model again";
constexpr std::string_view kActivations = "it is for activations alone; convert the original model again";
constexpr std::string_view kIntegers = "weights are floating-point numbers or blocks of them";
constexpr RefusedType kRefusedTypes[] = {
    {4, "q4_2", kWithdrawn},        {5, "q4_3", kWithdrawn},        {9, "q8_1", kActivations},
    {15, "q8_k", kActivations},     {24, "i8", kIntegers},          {25, "i16", kIntegers},
    {26, "i32", kIntegers},         {27, "i64", kIntegers},         {31, "q4_0_4_4", kWithdrawn},
    {32, "q4_0_4_8", kWithdrawn},   {33, "q4_0_8_8", kWithdrawn},   {36, "iq4_nl_4_4", kWithdrawn},
    {37, "iq4_nl_4_8", kWithdrawn}, {38, "iq4_nl_8_8", kWithdrawn},
};

Status refused_type(const GgufTensor& tensor) {
  const auto refused = std::ranges::find(kRefusedTypes, tensor.type, &RefusedType::id);
  if (refused != std::end(kRefusedTypes)) {
    return Status(StatusCode::kUnsupported, format("tensor '{}' has type {} (number {}): {}", tensor.name,
                                                   refused->name, tensor.type, refused->reason));
  }
  constexpr std::string_view kUnknown =
      "tensor '{}' has type number {}; the last known is {}: the file is damaged, or newer than this reader";
  return Status(StatusCode::kUnsupported,
                format(kUnknown, tensor.name, tensor.type, std::prev(std::end(kTensorTypes))->first));
}

int64_t scalar_bytes(GgufType type) {  // 0: strings, arrays, unknown types
  constexpr int64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  const auto id = static_cast<uint32_t>(type);
  return id < std::size(kBytes) ? kBytes[id] : 0;
}

template <class Wide, class Narrow>
Result<GgufValue> widen(ByteCursor& cursor, std::string_view key) {
  TSR_ASSIGN_OR_RETURN(Narrow value, cursor.read<Narrow>(key));
  return GgufValue(static_cast<Wide>(value));
}

Result<std::string> read_string(ByteCursor& cursor, std::string_view what) {
  TSR_ASSIGN_OR_RETURN(uint64_t length, cursor.read<uint64_t>(what));
  return cursor.read_text(length, what);
}

// Skips an array's elements; an error if the file is too short.
Status skip_elements(ByteCursor& cursor, GgufType element, uint64_t count, int depth, std::string_view key) {
  const auto left = static_cast<uint64_t>(cursor.left());
  if (const int64_t bytes = scalar_bytes(element); bytes > 0) {
    if (count > left / static_cast<uint64_t>(bytes)) {
      return Status(StatusCode::kCorrupt,
                    format("metadata '{}' has {} elements of {} bytes, {} bytes are left in the file", key,
                           count, bytes, left));
    }
    return cursor.skip(count * static_cast<uint64_t>(bytes), key);
  }
  const uint64_t least = element == GgufType::kString ? 8 : 12;  // a length; a type and a count
  if (count > left / least) {
    return Status(StatusCode::kCorrupt,
                  format("metadata '{}' has {} elements, {} bytes are left in the file", key, count, left));
  }
  for (uint64_t i = 0; i < count; ++i) {
    if (element == GgufType::kString) {
      TSR_ASSIGN_OR_RETURN(uint64_t length, cursor.read<uint64_t>(key));
      TSR_RETURN_IF_ERROR(cursor.skip(length, key));
    } else if (element == GgufType::kArray) {
      if (depth >= kMaxArrayDepth) {
        return Status(StatusCode::kCorrupt,
                      format("metadata '{}' nests more than {} arrays", key, kMaxArrayDepth));
      }
      TSR_ASSIGN_OR_RETURN(uint32_t inner, cursor.read<uint32_t>(key));
      TSR_ASSIGN_OR_RETURN(uint64_t inner_count, cursor.read<uint64_t>(key));
      TSR_RETURN_IF_ERROR(skip_elements(cursor, static_cast<GgufType>(inner), inner_count, depth + 1, key));
    } else {
      return Status(StatusCode::kCorrupt, format("metadata '{}' has elements of unknown type {}", key,
                                                 static_cast<uint32_t>(element)));
    }
  }
  return {};
}

Result<GgufValue> read_value(ByteCursor& cursor, GgufType type, std::string_view key) {
  switch (type) {
    case GgufType::kU8: return widen<uint64_t, uint8_t>(cursor, key);
    case GgufType::kU16: return widen<uint64_t, uint16_t>(cursor, key);
    case GgufType::kU32: return widen<uint64_t, uint32_t>(cursor, key);
    case GgufType::kU64: return widen<uint64_t, uint64_t>(cursor, key);
    case GgufType::kI8: return widen<int64_t, int8_t>(cursor, key);
    case GgufType::kI16: return widen<int64_t, int16_t>(cursor, key);
    case GgufType::kI32: return widen<int64_t, int32_t>(cursor, key);
    case GgufType::kI64: return widen<int64_t, int64_t>(cursor, key);
    case GgufType::kF32: return widen<double, float>(cursor, key);
    case GgufType::kF64: return widen<double, double>(cursor, key);
    case GgufType::kBool: {
      TSR_ASSIGN_OR_RETURN(uint8_t value, cursor.read<uint8_t>(key));
      if (value > 1)
        return Status(StatusCode::kCorrupt, format("metadata '{}' is bool {}; wanted 0 or 1", key, value));
      return GgufValue(value == 1);
    }
    case GgufType::kString: {
      TSR_ASSIGN_OR_RETURN(std::string value, read_string(cursor, key));
      return GgufValue(std::move(value));
    }
    case GgufType::kArray: {
      TSR_ASSIGN_OR_RETURN(uint32_t element, cursor.read<uint32_t>(key));
      TSR_ASSIGN_OR_RETURN(uint64_t count, cursor.read<uint64_t>(key));
      GgufArray array{static_cast<GgufType>(element), count, cursor.position()};
      TSR_RETURN_IF_ERROR(skip_elements(cursor, array.element, count, 1, key));
      return GgufValue(array);
    }
  }
  return Status(StatusCode::kCorrupt,
                format("metadata '{}' has unknown type {}", key, static_cast<uint32_t>(type)));
}

Result<std::string> read_name(ByteCursor& cursor, std::string_view what) {
  TSR_ASSIGN_OR_RETURN(uint64_t length, cursor.read<uint64_t>(what));
  if (length == 0 || length > kMaxNameBytes) {
    return Status(StatusCode::kCorrupt,
                  format("{} has {} bytes; names have 1 to {}", what, length, kMaxNameBytes));
  }
  return cursor.read_text(length, what);
}

// Fills in `bytes`; `offset` is still relative to the data section.
Result<GgufTensor> read_tensor(ByteCursor& cursor) {
  GgufTensor tensor;
  TSR_ASSIGN_OR_RETURN(tensor.name, read_name(cursor, "a tensor's name"));
  TSR_ASSIGN_OR_RETURN(uint32_t rank, cursor.read<uint32_t>(tensor.name));
  if (rank > kMaxDims) {
    return Status(StatusCode::kCorrupt,
                  format("tensor '{}' has {} dims; at most {} exist", tensor.name, rank, kMaxDims));
  }
  int64_t elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    TSR_ASSIGN_OR_RETURN(uint64_t extent, cursor.read<uint64_t>(tensor.name));
    if (extent > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(elements, static_cast<int64_t>(extent), &elements)) {
      return Status(StatusCode::kCorrupt,
                    format("tensor '{}' has too many elements: dim {} is {}", tensor.name, i, extent));
    }
    tensor.dims.push_back(static_cast<int64_t>(extent));
  }
  TSR_ASSIGN_OR_RETURN(tensor.type, cursor.read<uint32_t>(tensor.name));
  TSR_ASSIGN_OR_RETURN(uint64_t offset, cursor.read<uint64_t>(tensor.name));
  if (offset > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Status(StatusCode::kCorrupt, format("tensor '{}' starts at {}", tensor.name, offset));
  }
  tensor.offset = static_cast<int64_t>(offset);
  const std::optional<DType> type = gguf_tensor_type(tensor.type);
  if (!type) return refused_type(tensor);
  const DTypeInfo& layout = info(*type);
  const int64_t row = tensor.dims.empty() ? 1 : tensor.dims[0];
  if (row % layout.block_elements != 0) {
    return Status(StatusCode::kCorrupt,
                  format("tensor '{}' has rows of {} elements; {} comes in blocks of {}", tensor.name, row,
                         layout.name, layout.block_elements));
  }
  if (__builtin_mul_overflow(elements / layout.block_elements, int64_t{layout.block_bytes}, &tensor.bytes)) {
    return Status(StatusCode::kCorrupt, format("tensor '{}' has too many bytes", tensor.name));
  }
  return tensor;
}

Status check_layout(const std::map<std::string, GgufTensor, std::less<>>& tensors, int64_t data_begin,
                    int64_t alignment, int64_t file_size) {
  std::vector<const GgufTensor*> by_offset;
  for (const auto& [name, tensor] : tensors) {
    if ((tensor.offset - data_begin) % alignment != 0) {
      return Status(StatusCode::kCorrupt,
                    format("tensor '{}' starts at {} of the data, which is no multiple of {}", name,
                           tensor.offset - data_begin, alignment));
    }
    if (tensor.offset > file_size || tensor.bytes > file_size - tensor.offset) {
      return Status(StatusCode::kCorrupt, format("tensor '{}' is {} bytes at {}, but the file has {}", name,
                                                 tensor.bytes, tensor.offset, file_size));
    }
    by_offset.push_back(&tensor);
  }
  std::ranges::sort(by_offset, [](const GgufTensor* a, const GgufTensor* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    if (by_offset[i - 1]->offset + by_offset[i - 1]->bytes > by_offset[i]->offset) {
      return Status(StatusCode::kCorrupt,
                    format("tensors '{}' and '{}' overlap", by_offset[i - 1]->name, by_offset[i]->name));
    }
  }
  return {};
}

Status wrong_type(std::string_view key, std::string_view wanted) {
  return Status(StatusCode::kCorrupt, format("metadata '{}' is not {}", key, wanted));
}

Status missing(std::string_view key) {
  return Status(StatusCode::kCorrupt, format("metadata '{}' is missing", key));
}

}  // namespace

std::optional<DType> gguf_tensor_type(uint32_t id) {
  const auto found = std::ranges::find(kTensorTypes, id, &std::pair<uint32_t, DType>::first);
  return found == std::end(kTensorTypes) ? std::nullopt : std::optional(found->second);
}

Result<GgufFile> GgufFile::open(std::shared_ptr<const ByteSource> source) {
  GgufFile file;
  file.source_ = std::move(source);
  ByteCursor cursor(*file.source_);
  TSR_ASSIGN_OR_RETURN(uint32_t magic, cursor.read<uint32_t>("the magic number"));
  if (magic != kMagic)
    return Status(StatusCode::kCorrupt, "not a GGUF file: it does not start with \"GGUF\"");
  TSR_ASSIGN_OR_RETURN(uint32_t version, cursor.read<uint32_t>("the version"));
  if (version != 2 && version != 3) {
    const bool big_endian = version != 0 && __builtin_bswap32(version) < 256;
    return Status(StatusCode::kUnsupported,
                  big_endian ? std::string("the GGUF file is big-endian; convert it to little-endian")
                             : format("GGUF version {}; versions 2 and 3 can be read", version));
  }
  TSR_ASSIGN_OR_RETURN(uint64_t tensor_count, cursor.read<uint64_t>("the tensor count"));
  TSR_ASSIGN_OR_RETURN(uint64_t value_count, cursor.read<uint64_t>("the metadata count"));
  // Minimum sizes: a metadata entry has a length, a one-byte name, a type and a
  // byte; a tensor entry a length, a one-byte name, a rank, a type and an offset.
  const auto left = static_cast<uint64_t>(cursor.left());
  if (value_count > left / 14 || tensor_count > left / 25) {
    return Status(StatusCode::kCorrupt, format("{} metadata values and {} tensors do not fit into {} bytes",
                                               value_count, tensor_count, left));
  }
  for (uint64_t i = 0; i < value_count; ++i) {
    TSR_ASSIGN_OR_RETURN(std::string key, read_name(cursor, "a metadata key"));
    TSR_ASSIGN_OR_RETURN(uint32_t type, cursor.read<uint32_t>(key));
    TSR_ASSIGN_OR_RETURN(GgufValue value, read_value(cursor, static_cast<GgufType>(type), key));
    if (!file.metadata_.emplace(key, std::move(value)).second) {
      return Status(StatusCode::kCorrupt, format("metadata '{}' appears twice", key));
    }
  }
  TSR_ASSIGN_OR_RETURN(int64_t alignment, file.integer("general.alignment", 32));
  if (alignment < 1 || alignment > kMaxAlignment || !std::has_single_bit(static_cast<uint64_t>(alignment))) {
    return Status(StatusCode::kCorrupt, format("general.alignment is {}; wanted a power of two up to {}",
                                               alignment, kMaxAlignment));
  }
  for (uint64_t i = 0; i < tensor_count; ++i) {
    TSR_ASSIGN_OR_RETURN(GgufTensor tensor, read_tensor(cursor));
    std::string name = tensor.name;
    if (!file.tensors_.emplace(name, std::move(tensor)).second) {
      return Status(StatusCode::kCorrupt, format("tensor '{}' appears twice", name));
    }
  }
  const int64_t data_begin = (cursor.position() + alignment - 1) / alignment * alignment;
  for (auto& [name, tensor] : file.tensors_) {
    if (__builtin_add_overflow(tensor.offset, data_begin, &tensor.offset)) {
      return Status(StatusCode::kCorrupt, format("tensor '{}' starts beyond the file", name));
    }
  }
  TSR_RETURN_IF_ERROR(check_layout(file.tensors_, data_begin, alignment, file.source_->size()));
  return file;
}

Result<GgufFile> GgufFile::join(const std::vector<GgufFile>& parts) {
  const auto name_of = [](const GgufFile& part) {
    const std::vector<std::string> paths = part.source_->paths();
    return paths.empty() ? std::string("memory") : paths.front();
  };
  GgufFile whole;
  std::vector<std::shared_ptr<const ByteSource>> sources;
  for (const GgufFile& part : parts) sources.push_back(part.source_);
  TSR_ASSIGN_OR_RETURN(whole.source_, join_sources(std::move(sources)));
  int64_t begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const auto& [name, tensor] : parts[i].tensors_) {
      for (size_t earlier = 0; whole.tensors_.contains(name); ++earlier)
        if (parts[earlier].tensors_.contains(name))
          return Status(StatusCode::kCorrupt, format("tensor '{}' is in two parts of the model: {} and {}",
                                                     name, name_of(parts[earlier]), name_of(parts[i])));
      GgufTensor moved = tensor;
      moved.offset += begin;  // at most the joined size
      whole.tensors_.emplace(name, std::move(moved));
    }
    begin += parts[i].source_->size();
  }
  whole.metadata_ = parts.front().metadata_;
  whole.read_ = parts.front().read_;
  return whole;
}

std::string value_text(const GgufValue& value) {
  constexpr size_t kMostBytes = 80;
  if (auto* number = std::get_if<uint64_t>(&value)) return to_text(*number);
  if (auto* number = std::get_if<int64_t>(&value)) return to_text(*number);
  if (auto* number = std::get_if<double>(&value)) return to_text(*number);
  if (auto* flag = std::get_if<bool>(&value)) return to_text(*flag);
  if (auto* array = std::get_if<GgufArray>(&value)) {
    constexpr std::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};
    const auto element = static_cast<size_t>(array->element);
    return format("[{} x {}]", array->count, element < std::size(kNames) ? kNames[element] : "unknown");
  }
  const auto& text = std::get<std::string>(value);
  return text.size() <= kMostBytes ? text
                                   : format("{}... ({} bytes)", text.substr(0, kMostBytes), text.size());
}

const GgufValue* GgufFile::find(std::string_view key) const {
  read_.emplace(key);
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

bool GgufFile::has_array(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found != metadata_.end() && std::holds_alternative<GgufArray>(found->second);
}

Result<int64_t> GgufFile::integer(std::string_view key, std::optional<int64_t> fallback) const {
  const GgufValue* found = find(key);
  if (found == nullptr) return fallback ? Result<int64_t>(*fallback) : Result<int64_t>(missing(key));
  if (auto* value = std::get_if<int64_t>(found)) return *value;
  if (auto* value = std::get_if<uint64_t>(found)) {
    if (*value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return static_cast<int64_t>(*value);
  }
  return wrong_type(key, "an integer");
}

Result<double> GgufFile::real(std::string_view key, std::optional<double> fallback) const {
  const GgufValue* found = find(key);
  if (found == nullptr) return fallback ? Result<double>(*fallback) : Result<double>(missing(key));
  if (auto* value = std::get_if<double>(found)) return *value;
  return wrong_type(key, "a floating-point number");
}

Result<bool> GgufFile::flag(std::string_view key, std::optional<bool> fallback) const {
  const GgufValue* found = find(key);
  if (found == nullptr) return fallback ? Result<bool>(*fallback) : Result<bool>(missing(key));
  if (auto* value = std::get_if<bool>(found)) return *value;
  return wrong_type(key, "a bool");
}

Result<std::string> GgufFile::text(std::string_view key, std::optional<std::string> fallback) const {
  const GgufValue* found = find(key);
  if (found == nullptr)
    return fallback ? Result<std::string>(*fallback) : Result<std::string>(missing(key));
  if (auto* value = std::get_if<std::string>(found)) return *value;
  return wrong_type(key, "a string");
}

Result<std::vector<std::string>> GgufFile::texts(std::string_view key) const {
  const GgufValue* found = find(key);
  std::vector<std::string> values;
  if (found == nullptr) return values;
  auto* array = std::get_if<GgufArray>(found);
  if (array == nullptr || array->element != GgufType::kString) return wrong_type(key, "an array of strings");
  ByteCursor cursor(*source_, array->offset);
  values.reserve(array->count);  // open() checked that they fit the file
  for (uint64_t i = 0; i < array->count; ++i) {
    TSR_ASSIGN_OR_RETURN(std::string value, read_string(cursor, key));
    values.push_back(std::move(value));
  }
  return values;
}

Result<std::vector<int64_t>> GgufFile::integers(std::string_view key) const {
  const GgufValue* found = find(key);
  std::vector<int64_t> values;
  if (found == nullptr) return values;
  auto* array = std::get_if<GgufArray>(found);
  if (array == nullptr) return wrong_type(key, "an array of integers");
  ByteCursor cursor(*source_, array->offset);
  for (uint64_t i = 0; i < array->count; ++i) {
    if (scalar_bytes(array->element) == 0) return wrong_type(key, "an array of integers");
    TSR_ASSIGN_OR_RETURN(GgufValue value, read_value(cursor, array->element, key));
    if (auto* number = std::get_if<int64_t>(&value)) {
      values.push_back(*number);
    } else if (auto* natural = std::get_if<uint64_t>(&value);
               natural != nullptr && *natural <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      values.push_back(static_cast<int64_t>(*natural));
    } else if (auto* flag = std::get_if<bool>(&value)) {
      values.push_back(*flag ? 1 : 0);
    } else {
      return wrong_type(key, "an array of integers");
    }
  }
  return values;
}

Result<std::vector<float>> GgufFile::floats(std::string_view key) const {
  const GgufValue* found = find(key);
  std::vector<float> values;
  if (found == nullptr) return values;
  auto* array = std::get_if<GgufArray>(found);
  if (array == nullptr || array->element != GgufType::kF32) return wrong_type(key, "an array of f32");
  ByteCursor cursor(*source_, array->offset);
  values.reserve(array->count);
  for (uint64_t i = 0; i < array->count; ++i) {
    TSR_ASSIGN_OR_RETURN(float value, cursor.read<float>(key));
    values.push_back(value);
  }
  return values;
}

}  // namespace tessera
