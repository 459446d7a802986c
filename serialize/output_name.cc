#include "serialize/output_name.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "graph/base/text.h"

namespace tessera {
namespace {

struct ForeignName {
  std::string_view ending, remedy;
};
constexpr std::string_view kFolder =
    "a Hugging Face folder holds safetensors: `tessera export MODEL -o FOLDER`, a name without that ending";
constexpr std::string_view kUnwritten =
    "wanted NAME.tsr, NAME.gguf, or a Hugging Face folder (export), from which other "
    "projects' tools convert";
constexpr std::string_view kPacked = "wanted NAME.tsr or NAME.gguf; pack it afterwards";
constexpr ForeignName kForeign[] = {
    {".safetensors", kFolder},  {".bin", kFolder},     {".pt", kFolder},         {".pth", kFolder},
    {".ckpt", kFolder},         {".onnx", kUnwritten}, {".ggml", kUnwritten},    {".h5", kUnwritten},
    {".keras", kUnwritten},     {".pb", kUnwritten},   {".tflite", kUnwritten},  {".mlmodel", kUnwritten},
    {".mlpackage", kUnwritten}, {".npz", kUnwritten},  {".npy", kUnwritten},     {".pkl", kUnwritten},
    {".pickle", kUnwritten},    {".nemo", kUnwritten}, {".msgpack", kUnwritten}, {".engine", kUnwritten},
    {".exl2", kUnwritten},      {".awq", kUnwritten},  {".gptq", kUnwritten},    {".zip", kPacked},
    {".gz", kPacked},           {".tar", kPacked},     {".tgz", kPacked},        {".zst", kPacked},
    {".xz", kPacked},
};

// The lower-case extension: ".onnx" of "a/b.ONNX/"; "": none.
std::string ending_of(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  std::string ending = std::filesystem::path(path).extension().string();
  std::ranges::transform(ending, ending.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending;
}

}  // namespace

bool is_gguf_name(std::string_view path) { return ending_of(path) == ".gguf"; }

Status check_file_name(const std::string& path) {
  const std::string ending = ending_of(path);
  for (const ForeignName& foreign : kForeign)
    if (ending == foreign.ending)
      return Status(
          StatusCode::kInvalidArgument,
          format("{}: the name ends in {}, a format that is not written: {}", path, ending, foreign.remedy));
  return {};
}

Status check_folder_name(const std::string& path) {
  const std::string ending = ending_of(path);
  if (ending == ".gguf" || ending == ".tsr")
    return Status(
        StatusCode::kInvalidArgument,
        format("{}: the name is that of a {} file, and a folder would be written: wanted a name without that "
               "ending, or {}",
               path, ending,
               ending == ".gguf"
                   ? "format gguf (adapters alone: format gguf with adapters)"
                   : "a .tsr file (`tessera import`, `adapt`, `merge` and `train` write them)"));
  return check_file_name(path);
}

Status check_gguf_name(const std::string& path) {
  if (ending_of(path) == ".tsr")
    return Status(
        StatusCode::kInvalidArgument,
        format("{}: the name ends in .tsr, and a GGUF file would be written: wanted NAME.gguf", path));
  return check_file_name(path);
}

}  // namespace tessera
