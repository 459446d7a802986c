// Token ids of texts and pairs of texts, for bidirectional models.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

struct TextIds {
  std::vector<int32_t> ids;
  size_t second =
      0;  // first token of type 1, the second text of a pair; ids.size() without one
  bool is_truncated = false;
};

// The text with the tokenizer's special tokens, at most `seq` tokens: the text, or
// the longer one of a pair, loses its end. Between a pair stands [SEP], or </s></s>
// if texts begin with <s>. kInvalidArgument if `seq` cannot hold the special tokens.
Result<TextIds> text_ids(const Tokenizer& tokenizer, std::string_view text,
                         std::optional<std::string_view> pair, int64_t seq);

}  // namespace tessera
