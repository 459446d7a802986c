// `tessera generate --prompts FILE`: a file of requests, many of them computed at once.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "command.h"
#include "line_adapters.h"
#include "request_file.h"
#include "result_file.h"

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
  Allowed allowed;   // of requests that do not say it themselves
  bool ids = false;  // token ids of the texts, too
  bool stats = false;
};
// `adapters` are loaded. Throws at the end where a request failed; its line says why, and the others are done.
void generate_file(const Common& common, const FileRun& run, RequestFile& requests,
                   const LineAdapters& adapters, const Engine& engine, ResultFile& results);

}  // namespace cli
