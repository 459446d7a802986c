#include "serialize/plain_file.h"

#include <cerrno>

#include "graph/base/text.h"
#include "serialize/atomic_file.h"

namespace tessera {

namespace {

// Optional files that readers of folders use if present.
constexpr std::string_view kSideFiles[] = {"config.json",
                                           "generation_config.json",
                                           "model.safetensors",
                                           "model.safetensors.index.json",
                                           "tokenizer.json",
                                           "tokenizer.model",
                                           "spiece.model",
                                           "sentencepiece.bpe.model",
                                           "spm.model",
                                           "sentencepiece.model",
                                           "tokenizer_config.json",
                                           "added_tokens.json",
                                           "special_tokens_map.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "vocab.txt",
                                           "chat_template.jinja",
                                           "chat_template.json",
                                           "modules.json",
                                           "1_Pooling/config.json",
                                           "sentence_bert_config.json",
                                           "config_sentence_transformers.json",
                                           "adapter_config.json",
                                           "adapter_model.safetensors"};
constexpr std::string_view kSideFolders[] = {"additional_chat_templates", "1_Pooling"};

}  // namespace

std::string_view kind_of_file(mode_t mode) {
  if (S_ISREG(mode)) return "a file";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

Result<bool> has_plain_file(const std::string& path) {
  const auto wrong = [&](std::string_view found) {
    return Status(StatusCode::kInvalidArgument,
                  format("{}: is {}, wanted a file; replace it, or remove it", path, found));
  };
  struct stat found {};
  if (::stat(path.c_str(), &found) == 0) {
    if (S_ISREG(found.st_mode)) return true;
    return wrong(kind_of_file(found.st_mode));
  }
  if (errno != ENOENT && errno != ENOTDIR) return io_error(path, "cannot look at");
  if (lstat(path.c_str(), &found) == 0) return wrong("a link to a file that is not there");
  return false;
}

Status check_side_files(const std::string& folder) {
  for (const std::string_view name : kSideFolders) {
    const std::string path = folder + "/" + std::string(name);
    struct stat found {};
    if (::stat(path.c_str(), &found) != 0 ? lstat(path.c_str(), &found) == 0 : !S_ISDIR(found.st_mode))
      return Status(StatusCode::kInvalidArgument,
                    format("{}: is {}, wanted a folder; replace it, or remove it", path,
                           S_ISLNK(found.st_mode) ? "a link to nothing" : kind_of_file(found.st_mode)));
  }
  for (const std::string_view name : kSideFiles)
    TSR_RETURN_IF_ERROR(has_plain_file(folder + "/" + std::string(name)).status());
  return {};
}

}  // namespace tessera
