#include "serialize/import/huggingface_weights.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/import/safetensors.h"
#include "serialize/plain_file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhole = "model.safetensors", kIndex = "model.safetensors.index.json";
constexpr int64_t kMostIndexBytes = int64_t{16} << 20;

Status corrupt(std::string message) { return Status(StatusCode::kCorrupt, std::move(message)); }

bool exists(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

Result<Json> read_index(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(const auto file, open_file(path));
  if (file->size() > kMostIndexBytes)
    return corrupt(format("{} has {} bytes, wanted at most {}", path, file->size(), kMostIndexBytes));
  std::string text(static_cast<size_t>(file->size()), '\0');
  TSR_RETURN_IF_ERROR(file->read_at(0, std::as_writable_bytes(std::span(text))));
  return parse_json(text, path);
}

// Unique shard names of an index; only plain names, so that none leaves the folder.
Result<std::vector<std::string>> shards_of(const std::string& index_path, const Json& index) {
  const auto map = index.find("weight_map");
  if (!index.is_object() || map == index.end() || !map->is_object())
    return corrupt(format("{}: weight_map is missing, wanted the file of each tensor", index_path));
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : std::string();
    if (!name.ends_with(".safetensors") || name.find('/') != name.npos || name.find('\\') != name.npos ||
        name.find('\0') != name.npos)
      return corrupt(format("{}: tensor '{}' is in {}, wanted the name of a .safetensors file in its folder",
                            index_path, quote(tensor), quote_json(file)));
    names.insert(name);
  }
  if (names.empty()) return corrupt(format("{}: weight_map is empty", index_path));
  return std::vector<std::string>(names.begin(), names.end());
}

// The error for a folder without readable weights.
Status none_found(const std::string& folder) {
  for (const char* const other : {"pytorch_model.bin", "pytorch_model.bin.index.json", "model.ckpt.index",
                                  "tf_model.h5", "flax_model.msgpack"})
    if (exists(path_in_folder(folder, other)))
      return Status(StatusCode::kUnsupported,
                    format("{} has its weights in {}; save them as safetensors (save_pretrained does)", folder,
                           other));
  return Status(StatusCode::kNotFound, format("{} has neither {} nor {}", folder, kWhole, kIndex));
}

}  // namespace

std::string path_in_folder(const std::string& folder, std::string_view name) {
  return folder.empty() ? std::string(name) : folder + "/" + std::string(name);
}

Result<WeightFiles> find_weight_files(const std::string& folder, std::string_view opened) {
  WeightFiles files;
  const std::string index_path = path_in_folder(folder, kIndex), whole = path_in_folder(folder, kWhole);
  const bool has_index = exists(index_path), has_whole = exists(whole);
  if (has_whole && (opened.empty() || opened == kWhole)) {
    files.paths = {whole};
    if (has_index) files.unread.emplace_back(kIndex);
    return files;
  }
  if (has_index) {
    TSR_ASSIGN_OR_RETURN(files.index, read_index(index_path));
    TSR_ASSIGN_OR_RETURN(const std::vector<std::string> names, shards_of(index_path, files.index));
    if (opened.empty() || std::ranges::find(names, opened) != names.end()) {
      for (const std::string& name : names) {
        files.paths.push_back(path_in_folder(folder, name));
        TSR_ASSIGN_OR_RETURN(const bool is_there, has_plain_file(files.paths.back()));
        if (!is_there)
          return Status(StatusCode::kNotFound,
                        format("{} is missing: {} names it", files.paths.back(), index_path));
      }
      if (has_whole) files.unread.emplace_back(kWhole);
      return files;
    }
    files.unread.emplace_back(kIndex);
  }
  if (opened.empty()) return none_found(folder);
  files.index = {};
  files.paths = {path_in_folder(folder, opened)};
  if (has_whole) files.unread.emplace_back(kWhole);
  return files;
}

Result<ForeignFile> read_weight_files(const std::string& folder, const WeightFiles& files) {
  ForeignFile file;
  std::vector<std::shared_ptr<const ByteSource>> sources;
  std::map<std::string, std::string, std::less<>> shard_of;
  int64_t base = 0;
  for (const std::string& path : files.paths) {
    TSR_ASSIGN_OR_RETURN(auto source, open_file(path));
    Result<ForeignTensors> tensors = read_safetensors(*source, base);
    if (!tensors.ok()) return tensors.status().with_context(path);
    for (auto& [name, tensor] : *tensors) {
      shard_of.emplace(name, fs::path(path).filename().string());
      if (!file.tensors.emplace(name, std::move(tensor)).second)
        return corrupt(format("{} has tensor '{}', which an earlier file has too", path, quote(name)));
    }
    base += source->size();
    sources.push_back(std::move(source));
  }
  if (!files.index.is_null())
    for (const auto& [name, shard] : files.index["weight_map"].items()) {
      const auto at = shard_of.find(name);
      if (at == shard_of.end() || at->second != shard.get<std::string>())
        return corrupt(format("{} says that tensor '{}' is in {}, which has not got it",
                              path_in_folder(folder, kIndex), quote(name), shard.get<std::string>()));
    }
  if (sources.size() == 1) {
    file.source = sources[0];
  } else {
    TSR_ASSIGN_OR_RETURN(file.source, join_sources(std::move(sources)));
  }
  return file;
}

}  // namespace tessera
