#include "shared_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace cli {

namespace {

namespace fs = std::filesystem;

// Options and positional arguments that name files. `train` may write to the folder that it resumes.
constexpr const char* kRead[] = {"model",       "data",     "tokenizer", "--data",      "--file",    "--prompts", "--adapter",
                                 "--imatrix",   "--plan",   "--profile", "--eval-file", "--pins",    "--template", "--tools",
                                 "--grammar",   "--init",   "--check",   "--tokenizer", "--cluster", "--draft-model",
                                 "--reference", "--json-schema", "--model"};
constexpr const char* kWritten[] = {"out",      "--out",   "--metrics",     "--report",
                                    "--trace",  "--certificate", "--checkpoint", "--tensorboard"};
// Pairs of a read and a written file with rules of their own, in the library or at their reader.
struct Pair {
  std::string_view command, read, written;
  const char* with = nullptr;  // if this option is given too
};
constexpr Pair kMayShare[] = {{"train", "model", "--out", "--resume"}, {"train", "--adapter", "--out", "--resume"}, {"plan", "--plan", "--out"},
                              {"import", "model", "--out"},  {"quantize", "model", "out"},    {"export", "model", "--out"},
                              {"merge", "model", "--out"},   {"generate", "--prompts", "--out"}};

struct Named {
  std::string option, path;
};

// Returns the paths in an option's value: of --data also those of a list of files.
std::vector<std::string> paths_in(const std::string& value) {
  if (!value.starts_with('[')) return {value};
  std::vector<std::string> paths;
  const Json list = Json::parse(value, nullptr, false);
  if (list.is_array())
    for (const Json& each : list)
      if (each.is_object() && each.contains("path") && each["path"].is_string())
        paths.push_back(each["path"].get<std::string>());
  return paths;
}

std::vector<Named> named_by(const CLI::App& command, std::span<const char* const> options) {
  std::vector<Named> all;
  for (const char* name : options)
    if (const CLI::Option* option = command.get_option_no_throw(name))
      for (const std::string& value : option->results())
        for (std::string& path : paths_in(value))
          if (!path.empty() && path != "-") all.push_back({name, std::move(path)});
  return all;
}

// Devices and pipes may be shared.
bool is_same(const std::string& a, const std::string& b) {
  struct stat first {
  }, second{};
  if (::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0)
    return first.st_dev == second.st_dev && first.st_ino == second.st_ino &&
           (S_ISREG(first.st_mode) || S_ISDIR(first.st_mode));
  std::error_code error;
  const fs::path one = fs::weakly_canonical(a, error), other = fs::weakly_canonical(b, error);
  return !error && one == other;
}

// Returns whether `path` is a file of the model, or of the adapters, in the folder `read`.
bool is_in_model(const fs::path& path, const std::string& read) {
  static constexpr const char* kNames[] = {"config.json",       "generation_config.json",  "tokenizer.json",
                                           "tokenizer.model",   "tokenizer_config.json",   "vocab.json",
                                           "vocab.txt",         "merges.txt",              "added_tokens.json",
                                           "modules.json",      "adapter_config.json",     "special_tokens_map.json",
                                           "spiece.model",      "chat_template.jinja",     "chat_template.json"};
  std::error_code error;
  if (!fs::is_directory(read, error) || !fs::is_regular_file(path, error)) return false;
  const std::string name = path.filename().string();
  const bool is_own = name.find(".safetensors") != name.npos ||
                      std::ranges::any_of(kNames, [&](const char* known) { return name == known; });
  return is_own && is_same(path.has_parent_path() ? path.parent_path().string() : ".", read);
}

}  // namespace

void refuse_shared_files(const CLI::App& command) {
  const std::vector<Named> read = named_by(command, kRead), written = named_by(command, kWritten);
  for (size_t i = 0; i < written.size(); ++i) {
    const auto& [option, path] = written[i];
    for (const Named& other : read) {
      const bool may_share = std::ranges::any_of(kMayShare, [&](const Pair& pair) {
        return pair.command == command.get_name() && pair.read == other.option && pair.written == option &&
               (pair.with == nullptr || command.count(pair.with) > 0);
      });
      if (is_in_model(path, other.path) || (!may_share && is_same(path, other.path)))
        throw Error(TSR_INVALID_ARGUMENT, option + " is " + path + ", which is read as " + other.option +
                                              " and would be lost; give another name to write");
    }
    for (size_t k = 0; k < i; ++k)
      if (is_same(path, written[k].path))
        throw Error(TSR_INVALID_ARGUMENT, written[k].option + " and " + option + " both are " + path +
                                              ", wanted a file for each");
  }
}

}  // namespace cli
