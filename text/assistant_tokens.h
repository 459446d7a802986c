// Tokens of the parts of a text that the assistant says.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace tessera {

// For each token 1 where it overlaps one of `spans` (in order) of a text of `size` bytes. A span ends with its last token
// that ends a turn, where it has one: behind it the template goes on.
std::vector<uint8_t> mark_assistant_tokens(const Encoding& encoding, size_t size,
                                           std::span<const TextRange> spans, const Tokenizer& tokenizer);

}  // namespace tessera
