// Converts instruction rows (Alpaca's and Dolly's fields), and rows with a separate system text, to messages.
#pragma once

#include <optional>

#include "graph/base/result.h"
#include "text/json.h"

namespace tessera {

// Converts {"instruction", "input" or "context", "output" or "response"; "system", "history"}, or {"conversations"
// or "messages", "system"}, to messages; other fields stay. nullopt: another form. kInvalidArgument names a field
// of a wrong type. `as_messages`: one list "messages" instead of "prompt" and "completion".
Result<std::optional<Json>> instruction_as_messages(const Json& row, bool as_messages);

}  // namespace tessera
