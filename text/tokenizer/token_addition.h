// Adds tokens to a vocabulary; they are matched before texts are split.
#pragma once

#include <span>
#include <string>

#include "graph/base/result.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// Number of tokens without the unused ones at the end, which pad the vocabulary to a table's rows.
size_t used_tokens(const TokenizerData& data);

// Appends a token per text. `special`: a control token, matched on request and hidden in
// decoded text; else always matched, and shown. kInvalidArgument for empty and existing texts.
Result<TokenizerData> with_added_tokens(TokenizerData data, std::span<const std::string> texts, bool special);

}  // namespace tessera
