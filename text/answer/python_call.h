// Calls as Python writes them: [f(a=1), g()], or one without brackets.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "text/answer/answer.h"
#include "text/answer/cut_calls.h"
#include "text/answer/payload_scanner.h"

namespace tessera::answer {

// nullopt for a text that is anything else, or no call.
std::optional<std::vector<ToolCall>> read_python_calls(std::string_view text);

// `text` ends within the calls, which begin at byte `begin`; the scanner began with their first bracket.
CutCalls read_cut_python_calls(std::string_view text, size_t begin, const PayloadScanner& scanner);

}  // namespace tessera::answer
