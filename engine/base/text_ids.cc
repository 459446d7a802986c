#include "engine/base/text_ids.h"

#include <algorithm>
#include <span>

#include "graph/base/text.h"

namespace tessera {
namespace {

// RoBERTa and its relatives put two separators between the texts.
bool closes_twice(const Tokenizer& tokenizer) {
  const std::span<const int32_t> before = tokenizer.before_text();
  return !before.empty() && tokenizer.data().tokens[static_cast<size_t>(before[0])] == "<s>";
}

}  // namespace

Result<TextIds> text_ids(const Tokenizer& tokenizer, std::string_view text,
                         std::optional<std::string_view> pair, int64_t seq) {
  const std::span<const int32_t> before = tokenizer.before_text(), after = tokenizer.after_text();
  const size_t border = pair ? after.size() * (closes_twice(tokenizer) ? 2 : 1) : 0;
  const size_t around = before.size() + border + after.size(), most = static_cast<size_t>(seq);
  if (around >= most)
    return Status(
        StatusCode::kInvalidArgument,
        format("embedder: option 'seq' is {}, wanted more than the {} tokens that stand around a text", seq,
               around));
  TSR_ASSIGN_OR_RETURN(std::vector<int32_t> first, tokenizer.encode(text));
  std::vector<int32_t> second;
  if (pair) {
    TSR_ASSIGN_OR_RETURN(second, tokenizer.encode(*pair));
  }
  TextIds result;
  const size_t room = most - around;
  if (first.size() + second.size() > room) {
    result.is_truncated = true;
    // The longer text is cut until both are equally long; of an odd number of tokens it keeps one more.
    const size_t shorter = std::min(first.size(), second.size());
    if (pair && 2 * shorter >= room) {
      const bool is_first_longer = first.size() > second.size();
      first.resize(is_first_longer ? room - room / 2 : room / 2);
      second.resize(room - first.size());
    } else {
      (first.size() > second.size() ? first : second).resize(room - shorter);
    }
  }
  std::vector<int32_t>& ids = result.ids;
  const auto append = [&](std::span<const int32_t> more) { ids.insert(ids.end(), more.begin(), more.end()); };
  append(before);
  append(first);
  if (pair) {
    append(after);
    if (closes_twice(tokenizer)) append(after);
    result.second = ids.size();
    append(second);
  }
  append(after);
  if (!pair) result.second = ids.size();
  return result;
}

}  // namespace tessera
