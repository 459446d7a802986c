// Token ids of texts, and of pairs of texts, as models in both directions read them.
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
      0;  // the first token of type 1: what follows the first text of a pair; ids.size() without one
  bool is_truncated = false;
};

// The text with what the tokenizer puts around texts, at most `seq` tokens: the text loses its last ones. Of a pair the
// longer text loses them, and what stands between follows from the tokenizer: [SEP], or </s></s> where texts begin with
// <s>. kInvalidArgument where `seq` does not hold what stands around.
Result<TextIds> text_ids(const Tokenizer& tokenizer, std::string_view text,
                         std::optional<std::string_view> pair, int64_t seq);

}  // namespace tessera
