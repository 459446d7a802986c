#include "line_adapters.h"

#include <algorithm>
#include <filesystem>

#include "usage.h"

namespace cli {

namespace fs = std::filesystem;

namespace {

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Runs `work`, with `place` and `path` before what it throws.
template <class Work>
void at_place(const std::string& place, const std::string& path, const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    // Some reasons begin with the path.
    const std::string reason = error.what();
    throw Error(error.code(),
                place + ": " + (reason.find(path) == std::string::npos ? path + ": " : "") + reason);
  }
}

}  // namespace

void add_adapters(CLI::App& command, std::vector<std::string>& words) {
  command
      .add_option("--adapter", words,
                  "an adapter made for this model, put on it: a folder of PEFT's, or a GGUF adapter "
                  "(docs/guides/adapters.md); with --prompts also NAME=PATH, several times: adapters that "
                  "lines name, {\"adapter\": \"NAME\"}")
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

LineAdapters::LineAdapters(const RequestFile& requests, const AdapterArguments& arguments,
                           const Model& model) {
  std::map<std::string, size_t> by_path;
  for (const auto& [said, line] : requests.adapters()) {
    const std::string place = requests.place(line);
    if (!arguments.of_model.empty())
      throw Error(TSR_INVALID_ARGUMENT, place + ": 'adapter' is " + quoted(said) + ", and --adapter " +
                                            arguments.of_model +
                                            " is put on the model: name it, --adapter NAME=PATH");
    const auto named = arguments.named.find(said);
    const std::string path =
        (named != arguments.named.end() ? fs::path(named->second) : fs::path(requests.folder()) / said)
            .lexically_normal()
            .string();
    const auto [found, is_new] = by_path.emplace(path, adapters_.size());
    by_words_.emplace(said, found->second);
    if (!is_new) continue;
    adapters_.push_back({path, place});
    at_place(place, path, [&] {
      const Model adapted = make<Model>(tsr_model_load_adapters, model.get(), path.c_str(),
                                        static_cast<const tsr_options*>(nullptr));
      const Json info = Json::parse(text(tsr_model_info, adapted.get()));
      for (const Json& weight : info["adapters"]["weights"])
        rank_ = std::max(rank_, weight["rank"].get<int64_t>());
    });
  }
}

void LineAdapters::load(const Engine& engine) {
  for (Adapter& it : adapters_)
    at_place(it.place, it.path,
             [&] { check(tsr_engine_load_adapter(engine.get(), it.path.c_str(), &it.number)); });
}

}  // namespace cli
