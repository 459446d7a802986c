// Base64, as tokenizer files write bytes.
#pragma once

#include <string>
#include <string_view>

#include "graph/base/result.h"

namespace tessera {

std::string encode_base64(std::string_view bytes);  // without padding
// kInvalidArgument, beginning with `what` it is, for other characters.
Result<std::string> decode_base64(std::string_view text, std::string_view what);

}  // namespace tessera
