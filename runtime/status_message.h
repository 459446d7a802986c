// A status as text that one process sends to another: code, numbers and message.
#pragma once

#include <string>
#include <string_view>

#include "graph/base/result.h"

namespace tessera {

std::string to_message(const Status& status);
// The status of `text`; kInternal if another library wrote it.
Status status_of_message(std::string_view text);

}  // namespace tessera
