#include "text/tokenizer/score_merges.h"

#include <algorithm>

namespace tessera {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // ▁, U+2581

bool may_be_merged(TokenType type) {
  return type == TokenType::kNormal || type == TokenType::kUserDefined || type == TokenType::kUnused;
}

// "x▁": without such tokens no merge crosses the start of a word.
bool has_space_within(std::string_view token) {
  while (token.starts_with(kSpace)) token.remove_prefix(kSpace.size());
  return token.find(kSpace) != std::string_view::npos;
}

}  // namespace

ScoreMerges::ScoreMerges(const TokenizerData& data, std::span<const TokenType> types)
    : scores_(data.scores), is_unused_(data.tokens.size()) {
  ids_.reserve(data.tokens.size());
  for (size_t id = 0; id < types.size(); ++id) {  // the last of equal tokens counts
    const std::string& token = data.tokens[id];
    if (!may_be_merged(types[id])) continue;
    ids_[token] = static_cast<int32_t>(id);
    is_unused_[id] = types[id] == TokenType::kUnused;
    longest_ = std::max(longest_, token.size());
    words_apart_ = words_apart_ && !has_space_within(token);
  }
}

size_t ScoreMerges::end_of_word(std::string_view text) const {
  constexpr size_t kLargest = size_t{1} << 30;  // symbols count bytes in 32 bits
  size_t end = text.size();
  if (words_apart_ || text.size() > kLargest) {
    size_t begin = words_apart_ ? 0 : kLargest;
    while (text.substr(begin).starts_with(kSpace)) begin += kSpace.size();
    end = std::min(end, text.find(kSpace, begin));
  }
  return std::min(end, kLargest);
}

void ScoreMerges::merge(std::string_view text, Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  scratch.halves.clear();
  const auto try_pair = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const Symbol &a = symbols[static_cast<size_t>(left)], &b = symbols[static_cast<size_t>(right)];
    const uint32_t size = a.size + b.size;
    if (a.is_whole || b.is_whole || size > longest_) return;
    const auto found = ids_.find(text.substr(a.begin, size));
    if (found == ids_.end()) return;
    const auto token = static_cast<size_t>(found->second);
    scratch.queue.push({scores_[token], left, right, size});
    if (is_unused_[token]) scratch.halves[found->first] = a.size;
  };
  for (size_t i = 1; i < symbols.size(); ++i) try_pair(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i));
  while (!scratch.queue.empty()) {
    const Pair pair = scratch.queue.top();
    scratch.queue.pop();
    Symbol& left = symbols[static_cast<size_t>(pair.left)];
    Symbol& right = symbols[static_cast<size_t>(pair.right)];
    if (left.size == 0 || right.size == 0 || left.size + right.size != pair.size) continue;
    left.size = pair.size;
    left.next = right.next;
    right.size = 0;
    if (right.next >= 0) symbols[static_cast<size_t>(right.next)].previous = pair.left;
    try_pair(left.previous, pair.left);
    try_pair(pair.left, left.next);
  }
}

}  // namespace tessera
