// Rows with an instruction (Alpaca's and Dolly's fields) and rows with a system text next to their messages, as rows of messages.
#pragma once

#include <optional>

#include "graph/base/result.h"
#include "text/json.h"

namespace tessera {

// {"instruction", "input" or "context", "output" or "response"; "system", "history"}, or {"conversations" or "messages",
// "system"}: the same row as messages; other fields stay. nullopt: the row is of another form. kInvalidArgument names a field of
// the wrong type. `as_messages`: one list "messages" in place of "prompt" and "completion".
Result<std::optional<Json>> instruction_as_messages(const Json& row, bool as_messages);

}  // namespace tessera
