// Options of commands that serve many requests at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "command.h"

namespace cli {

struct Serving {
  std::optional<int64_t> sequences, cache_tokens, window_cache_tokens,
      step_tokens;  // absent: the library's default
  std::optional<int64_t> draft_tokens, adapters, adapter_rank;
  std::optional<std::string> cache_type, speculation, draft_model, adapter_type;
  bool no_prefix_cache = false;
};
// `where` begins the descriptions: "with --prompts: ".
void add_serving(CLI::App& command, Serving& serving, const std::string& where);
// Returns the first of these options that was given, say "--sequences"; "" for none.
std::string given_serving(const CLI::App& command);
void set_serving(const Options& options, const Serving& serving);

}  // namespace cli
