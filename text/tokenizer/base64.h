// Base64, the encoding of bytes in tokenizer files.
#pragma once

#include <string>
#include <string_view>

#include "graph/base/result.h"

namespace tessera {

std::string encode_base64(std::string_view bytes);  // without padding
// kInvalidArgument, beginning with `what`, for other characters.
Result<std::string> decode_base64(std::string_view text, std::string_view what);

}  // namespace tessera
