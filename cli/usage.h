// Messages for words of the command line that cannot be understood.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace cli {

// The message for `error`, which `app` threw while it read its words: one line, without "tessera:".
std::string usage_message(const CLI::App& app, const CLI::ParseError& error);

}  // namespace cli
