// New tokens of a vocabulary, found in texts before they are split, as added tokens are.
#pragma once

#include <span>
#include <string>

#include "graph/base/result.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// Tokens that texts use or end by: unused ones at the vocabulary's end, which pad it to a table's rows, do not count.
size_t used_tokens(const TokenizerData& data);

// Each text becomes a token with the next id. `special`: a control token, found on request and left out of decoded text;
// else it is found always, and text. kInvalidArgument for an empty text and one that the vocabulary has.
Result<TokenizerData> with_added_tokens(TokenizerData data, std::span<const std::string> texts, bool special);

}  // namespace tessera
