#include "adapter_arguments.h"

#include <filesystem>

#include "usage.h"

namespace cli {

namespace fs = std::filesystem;

namespace {

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

}  // namespace

void add_adapters(CLI::App& command, std::vector<std::string>& words) {
  command
      .add_option("--adapter", words,
                  "adapter of this model: a PEFT folder or a GGUF adapter (docs/guides/adapters.md); with --prompts "
                  "also NAME=PATH, repeatable: an adapter that lines request by {\"adapter\": \"NAME\"}")
      ->allow_extra_args(false);
}

AdapterArguments read_adapters(const std::vector<std::string>& words) {
  AdapterArguments arguments;
  const std::string& of_model = arguments.of_model;
  for (const std::string& word : words) {
    const size_t at = word.find('=');
    if (at == std::string::npos || is_there(word)) {
      if (!of_model.empty())
        throw Error(TSR_INVALID_ARGUMENT, "--adapter: found " + quoted(of_model) + " and " + quoted(word) +
                                              ", wanted one to put on the model; for lines: NAME=PATH");
      arguments.of_model = word;
      continue;
    }
    if (at == 0 || at + 1 == word.size())
      throw Error(TSR_INVALID_ARGUMENT, "--adapter is " + quoted(word) + ", wanted PATH or NAME=PATH");
    if (!arguments.named.emplace(word.substr(0, at), word.substr(at + 1)).second)
      throw Error(TSR_INVALID_ARGUMENT, "--adapter: two have the name " + quoted(word.substr(0, at)));
  }
  if (!of_model.empty() && !arguments.named.empty())
    throw Error(TSR_INVALID_ARGUMENT,
                "--adapter: " + quoted(of_model) +
                    " is put on the model, and lines could not name another: wanted NAME=PATH");
  return arguments;
}

}  // namespace cli
