// Split GGUF models: names and consistency of the parts. As llama.cpp's
// gguf-split writes them, all parts have tensors and the first has the metadata.
#include <cstdio>
#include <optional>
#include <utility>

#include "graph/base/text.h"
#include "serialize/import/gguf_file.h"

namespace tessera {
namespace {

constexpr int64_t kMaxParts = 65535;  // split.count is u16

// PartNumber: "part `number` + 1 of `count`"; a count of 0 or 1 is a whole model.
struct PartNumber {
  int64_t number = 0, count = 1;
  bool is_split() const { return count > 1; }
};

Result<PartNumber> part_number(const GgufFile& file) {
  PartNumber part;
  TSR_ASSIGN_OR_RETURN(part.count, file.integer("split.count", 1));
  TSR_ASSIGN_OR_RETURN(part.number, file.integer("split.no", 0));
  if (part.count < 0 || part.count > kMaxParts)
    return Status(StatusCode::kCorrupt, format("split.count is {}; wanted 0 to {}", part.count, kMaxParts));
  if (part.is_split() && (part.number < 0 || part.number >= part.count))
    return Status(StatusCode::kCorrupt, format("split.no is {} of {} parts (split.count); wanted 0 to {}",
                                               part.number, part.count, part.count - 1));
  return part;
}

// "-00002-of-00003.gguf" for number 1 of 3.
std::string part_suffix(int64_t number, int64_t count) {
  char text[64];
  std::snprintf(text, sizeof text, "-%05lld-of-%05lld.gguf", static_cast<long long>(number + 1),
                static_cast<long long>(count));
  return text;
}

// The common prefix of the parts' paths.
Result<std::string> part_prefix(const GgufFile& file, const PartNumber& part) {
  const std::vector<std::string> paths = file.source()->paths();
  if (paths.empty())
    return Status(StatusCode::kUnsupported,
                  format("this is part {} of a model in {} files (split.count), whose other parts cannot be "
                         "found from memory or through a callback; load it by its path, or merge the files "
                         "first (llama-gguf-split --merge)",
                         part.number + 1, part.count));
  const std::string suffix = part_suffix(part.number, part.count);
  if (!paths.front().ends_with(suffix))
    return Status(StatusCode::kInvalidArgument,
                  format("{} is part {} of a model in {} files (split.no {}, split.count {}); wanted a name "
                         "that ends with {}, from which those of the others follow: give it that name",
                         paths.front(), part.number + 1, part.count, part.number, part.count, suffix));
  return paths.front().substr(0, paths.front().size() - suffix.size());
}

// Opens part `number` of `count` at `path`.
Result<GgufFile> open_part(const std::string& path, int64_t number, int64_t count) {
  Result<std::shared_ptr<const ByteSource>> source = open_file(path);
  if (!source.ok())
    return source.status().code() == StatusCode::kNotFound
               ? Status(
                     StatusCode::kNotFound,
                     format("part {} of {} of the model is missing: wanted {}; put all parts into one folder",
                            number + 1, count, path))
               : source.status();
  const auto open = [&]() -> Result<GgufFile> {
    TSR_ASSIGN_OR_RETURN(GgufFile file, GgufFile::open(std::move(*source)));
    TSR_ASSIGN_OR_RETURN(const PartNumber part, part_number(file));
    if (part.number != number || part.count != count)
      return Status(StatusCode::kCorrupt,
                    format("says to be part {} of {} (split.no {}, split.count {}); wanted part {} of {}, as "
                           "its name has it: it belongs to another model, or was renamed",
                           part.number + 1, part.count, part.number, part.count, number + 1, count));
    return file;
  };
  Result<GgufFile> file = open();
  if (!file.ok()) return file.status().with_context(path);
  return file;
}

// Checks split.tensors.count, the total over all parts; required in the first, optional in others.
Status check_tensor_counts(const GgufFile& whole, const std::vector<GgufFile>& parts) {
  const auto found = static_cast<int64_t>(whole.tensors().size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const GgufFile& keys = i == 0 ? whole : parts[i];
    const std::string path = parts[i].source()->paths().front();
    const Result<int64_t> wanted =
        keys.integer("split.tensors.count", i == 0 ? std::nullopt : std::optional(found));
    if (!wanted.ok()) return wanted.status().with_context(path);
    if (*wanted != found)
      return Status(StatusCode::kCorrupt,
                    format("{}: split.tensors.count is {}, but the {} parts hold {} tensors together", path,
                           *wanted, parts.size(), found));
  }
  return {};
}

}  // namespace

Result<GgufFile> open_gguf_parts(std::shared_ptr<const ByteSource> source) {
  TSR_ASSIGN_OR_RETURN(GgufFile given, GgufFile::open(std::move(source)));
  TSR_ASSIGN_OR_RETURN(const PartNumber part, part_number(given));
  if (!part.is_split()) return given;
  TSR_ASSIGN_OR_RETURN(const std::string prefix, part_prefix(given, part));
  std::vector<GgufFile> parts;
  for (int64_t number = 0; number < part.count; ++number) {
    if (number == part.number) {
      parts.push_back(std::move(given));
      continue;
    }
    TSR_ASSIGN_OR_RETURN(GgufFile file,
                         open_part(prefix + part_suffix(number, part.count), number, part.count));
    parts.push_back(std::move(file));
  }
  TSR_ASSIGN_OR_RETURN(GgufFile whole, GgufFile::join(parts));
  TSR_RETURN_IF_ERROR(check_tensor_counts(whole, parts));
  return whole;
}

Result<GgufFile> open_gguf_metadata(std::shared_ptr<const ByteSource> source) {
  TSR_ASSIGN_OR_RETURN(GgufFile given, GgufFile::open(std::move(source)));
  TSR_ASSIGN_OR_RETURN(const PartNumber part, part_number(given));
  if (part.number == 0 || !part.is_split()) return given;
  TSR_ASSIGN_OR_RETURN(const std::string prefix, part_prefix(given, part));
  return open_part(prefix + part_suffix(0, part.count), 0, part.count);
}

}  // namespace tessera
