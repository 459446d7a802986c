#include "text/assistant_tokens.h"

#include <algorithm>

namespace tessera {

std::vector<uint8_t> mark_assistant_tokens(const Encoding& encoding, size_t size,
                                           std::span<const TextRange> spans, const Tokenizer& tokenizer) {
  std::vector<uint8_t> marks(encoding.ids.size(), 0);
  size_t token = 0;
  for (const TextRange& span : spans) {
    const auto end_of = [&](size_t i) {
      return i + 1 < encoding.begins.size() ? encoding.begins[i + 1] : size;
    };
    while (token < marks.size() && end_of(token) <= span.begin) ++token;
    const size_t first = token;
    while (token < marks.size() && encoding.begins[token] < span.end) ++token;
    size_t last = token;
    while (last > first && !tokenizer.ends_text(encoding.ids[last - 1])) --last;
    std::fill(marks.begin() + static_cast<ptrdiff_t>(first),
              marks.begin() + static_cast<ptrdiff_t>(last > first ? last : token), uint8_t{1});
  }
  return marks;
}

}  // namespace tessera
