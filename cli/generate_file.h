// `tessera generate --prompts FILE`: a file of requests, many of them computed at once.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "command.h"

namespace cli {

// The constraint on texts: an option of a request, with its value.
using Constraint = std::optional<std::pair<std::string, std::string>>;

// --json-schema, --grammar, --regex; at most one is given.
struct ConstraintArguments {
  std::string json_schema_file, grammar_file, regex;
};
void add_constraint_options(CLI::App& command, ConstraintArguments& arguments);
Constraint read_constraint(const ConstraintArguments& arguments);

struct FileRun {
  Constraint constraint;  // of requests without one of their own
  std::map<std::string, std::string> adapters;  // paths of adapters that lines may name
  bool ids = false;  // token ids of the texts, too
  bool stats = false;
};
// Checks all lines; `output` empty: standard output.
RequestFile open_requests(const std::string& path, const std::string& output, const FileRun& run);
// Runs a started file. Throws at the end if a request failed; its line has the reason, and the others are complete.
void generate_file(const Common& common, const FileRun& run, const RequestFile& file);

}  // namespace cli
