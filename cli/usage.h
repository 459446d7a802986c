// Messages for invalid command lines.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace cli {

// Returns the message for `error`, thrown by `app` when parsing its `words`: one line, without "tessera:".
std::string usage_message(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words);

// Returns the message for a word such as "-ngl", which the parser would read as the option -n with the value "gl"; "" for none.
std::string misread_option(const CLI::App& app, const std::vector<std::string>& words);

// Returns the word quoted, on one line, and shortened.
std::string quoted(const std::string& word);

}  // namespace cli
