// Marks the tokens of the assistant's parts of a text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace tessera {

// For each token 1 if it overlaps one of `spans` (ascending) of a text of `size` bytes.
// A span ends with its last end-of-turn token, if any; the template continues after it.
std::vector<uint8_t> mark_assistant_tokens(const Encoding& encoding, size_t size,
                                           std::span<const TextRange> spans, const Tokenizer& tokenizer);

}  // namespace tessera
