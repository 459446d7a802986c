// Messages for words of the command line that cannot be understood.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace cli {

// The message for `error`, which `app` threw while it read its `words`: one line, without "tessera:".
std::string usage_message(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words);

// The message for a word such as "-ngl", which the parser would read as the option -n with the value "gl"; "": there is none.
std::string misread_option(const CLI::App& app, const std::vector<std::string>& words);

// Quoted, on one line, and short enough to be read.
std::string quoted(const std::string& word);

}  // namespace cli
