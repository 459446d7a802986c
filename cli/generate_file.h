// `tessera generate --prompts FILE`: a file of requests, many of them computed at once.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "command.h"

namespace cli {

// Which texts are allowed: an option of a request, with its value.
using Allowed = std::optional<std::pair<std::string, std::string>>;

// --json-schema, --grammar, --regex; at most one is given.
struct AllowedArguments {
  std::string json_schema_file, grammar_file, regex;
};
void add_allowed(CLI::App& command, AllowedArguments& arguments);
Allowed read_allowed(const AllowedArguments& arguments);

struct FileRun {
  Allowed allowed;  // of requests that do not say it themselves
  std::map<std::string, std::string> adapters;  // paths of those that lines may name
  bool ids = false;  // token ids of the texts, too
  bool stats = false;
};
// Checks all lines; `output` empty: standard output.
RequestFile open_requests(const std::string& path, const std::string& output, const FileRun& run);
// Of a file that has been started. Throws at the end where a request failed; its line says why, and the others are done.
void generate_file(const Common& common, const FileRun& run, const RequestFile& file);

}  // namespace cli
