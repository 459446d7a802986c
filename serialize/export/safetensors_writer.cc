#include "serialize/export/safetensors_writer.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {
namespace {

Result<std::string_view> type_name(const TensorSource& tensor) {
  switch (tensor.type.dtype) {
    case DType::kF32: return std::string_view("F32");
    case DType::kF16: return std::string_view("F16");
    case DType::kBF16: return std::string_view("BF16");
    default:
      return Status(StatusCode::kUnsupported, format("tensor '{}' is {}, which safetensors do not hold",
                                                     tensor.name, to_text(tensor.type.dtype)));
  }
}

// Keys with the texts of their values; a Json would search all earlier keys for each.
using Members = std::vector<std::pair<std::string, std::string>>;
std::string object_text(const Members& members, std::string_view separator) {
  std::string text = "{";
  for (const auto& [key, value] : members)
    text += (text.size() == 1 ? "" : ",") + std::string(separator) + dump(Json(key)) + ":" + value;
  return text + std::string(separator) + "}";
}

std::string shard_name(size_t number, size_t count) {
  char text[64];
  std::snprintf(text, sizeof text, "model-%05zu-of-%05zu.safetensors", number + 1, count);
  return text;
}

}  // namespace

Result<TensorFile> safetensors_file(std::vector<TensorSource> tensors, std::string name,
                                    std::string_view exported_by, std::string_view base) {
  std::ranges::stable_sort(tensors, std::ranges::greater{},
                           [](const TensorSource& tensor) { return dtype_bytes(tensor.type.dtype, 1); });
  Json metadata = {{"format", "pt"}};
  if (!exported_by.empty()) metadata["exported_by"] = exported_by;
  if (!base.empty()) metadata["base_model"] = base;
  Members header = {{"__metadata__", dump(metadata)}};
  int64_t at = 0;
  for (const TensorSource& tensor : tensors) {
    TSR_ASSIGN_OR_RETURN(const std::string_view type, type_name(tensor));
    const int64_t end = at + bytes(tensor.type);
    const auto dims = tensor.type.shape.dims();
    header.emplace_back(tensor.name, dump({{"dtype", type},
                                           {"shape", std::vector<int64_t>(dims.begin(), dims.end())},
                                           {"data_offsets", {at, end}}}));
    at = end;
  }
  std::string text = object_text(header, "");
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  TensorFile file{std::move(name), std::string(sizeof size, '\0') + text, {}, 0};
  std::memcpy(file.header.data(), &size, sizeof size);
  file.bytes = file.header.size();
  for (TensorSource& tensor : tensors) {
    const auto all = static_cast<uint64_t>(bytes(tensor.type));
    file.tensors.push_back({std::move(tensor), file.bytes});
    file.bytes += all;
  }
  return file;
}

Result<SafetensorsFiles> safetensors_files(std::vector<TensorSource> tensors, int64_t shard_bytes) {
  std::vector<std::vector<TensorSource>> shards(1);
  int64_t all = 0, in_shard = 0, elements = 0;
  for (TensorSource& tensor : tensors) {
    const int64_t size = bytes(tensor.type);
    if (!shards.back().empty() && in_shard + size > shard_bytes) {
      shards.emplace_back();
      in_shard = 0;
    }
    in_shard += size;
    all += size;
    elements += tensor.type.shape.elements();
    shards.back().push_back(std::move(tensor));
  }
  SafetensorsFiles result;
  if (shards.size() == 1) {
    TSR_ASSIGN_OR_RETURN(TensorFile file, safetensors_file(std::move(shards[0]), "model.safetensors"));
    result.files.push_back(std::move(file));
    return result;
  }
  Members places;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    for (const TensorSource& tensor : shards[i]) places.emplace_back(tensor.name, name);
    TSR_ASSIGN_OR_RETURN(TensorFile file, safetensors_file(std::move(shards[i]), name));
    result.files.push_back(std::move(file));
  }
  std::ranges::sort(places);
  for (auto& [tensor, file] : places) file = dump(Json(file));
  const Json metadata = {{"total_parameters", elements}, {"total_size", all}};
  result.index = object_text({{"metadata", dump(metadata)}, {"weight_map", object_text(places, "\n")}}, "\n");
  return result;
}

}  // namespace tessera
