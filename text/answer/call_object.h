// Calls written as JSON objects: {"name": NAME, "arguments": {...}}, also within {"function": ...}, or {NAME: {...}}.
#pragma once

#include <optional>
#include <string_view>

#include "text/answer/answer.h"
#include "text/answer/cut_calls.h"
#include "text/answer/payload_scanner.h"

namespace tessera::answer {

// nullopt for an object that is no call.
std::optional<ToolCall> read_call_object(const Json& given, const CallForm& form);

// `text` ends within an object or a list of them; the scanner began with their first bracket.
CutCalls read_cut_objects(std::string_view text, const PayloadScanner& scanner, const CallForm& form);

// Whether marks distinguish the form's calls from other JSON.
bool has_marks(const CallForm& form);

}  // namespace tessera::answer
