#include "text/grammar/token_bytes.h"

#include <algorithm>
#include <array>

#include "graph/base/text.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera::grammar {
namespace {

// A token that can precede and follow others without changing their text.
Result<int32_t> find_neighbour(const Tokenizer& tokenizer) {
  for (const char* text : {"a", "e", "0", "."}) {
    TSR_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer.encode(text));
    if (!ids.empty() && !tokenizer.decode(std::span(ids).last(1)).empty()) return ids.back();
  }
  return Status(
      StatusCode::kUnsupported,
      "the tokenizer has no token for any of 'a', 'e', '0' and '.': what its tokens stand for is not known");
}

bool has_bytes(const TokenizerData& data, size_t id) {
  if (data.types.empty()) return true;
  const TokenType type = data.types[id];
  return type == TokenType::kNormal || type == TokenType::kUserDefined || type == TokenType::kByte;
}

bool is_control_token(const TokenizerData& data, size_t id) {
  return !data.types.empty() && data.types[id] == TokenType::kControl && !data.tokens[id].empty();
}

constexpr char kControlBegin = '\xFF', kControlEnd = '\xFE';

}  // namespace

std::string TokenBytes::control_bytes(std::string_view text) {
  return kControlBegin + std::string(text) + kControlEnd;
}

Result<std::shared_ptr<const TokenBytes>> TokenBytes::create(std::vector<std::string> tokens,
                                                             std::vector<int32_t> end_ids) {
  for (const int32_t id : end_ids)
    if (id < 0 || static_cast<size_t>(id) >= tokens.size())
      return Status(StatusCode::kInvalidArgument,
                    format("the end token {} is outside the vocabulary of {}", id, tokens.size()));
  std::shared_ptr<TokenBytes> made(new TokenBytes);
  made->tokens_ = std::move(tokens);
  made->end_ids_ = std::move(end_ids);
  std::ranges::sort(made->end_ids_);
  made->end_ids_.erase(std::unique(made->end_ids_.begin(), made->end_ids_.end()), made->end_ids_.end());
  for (const int32_t id : made->end_ids_) made->tokens_[static_cast<size_t>(id)].clear();
  made->build_trie();
  return std::shared_ptr<const TokenBytes>(std::move(made));
}

Result<std::shared_ptr<const TokenBytes>> TokenBytes::create(const Tokenizer& tokenizer) {
  TSR_ASSIGN_OR_RETURN(const int32_t neighbour, find_neighbour(tokenizer));
  const std::string before = tokenizer.decode(std::array{neighbour});
  const std::string both = tokenizer.decode(std::array{neighbour, neighbour});
  const std::string_view after = std::string_view(both).substr(std::min(before.size(), both.size()));
  std::vector<std::string> tokens(static_cast<size_t>(tokenizer.vocabulary_size()));
  bool has_control = false;
  for (size_t id = 0; id < tokens.size(); ++id) has_control = has_control || is_control_token(tokenizer.data(), id);
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (is_control_token(tokenizer.data(), id)) tokens[id] = control_bytes(tokenizer.data().tokens[id]);
    if (!has_bytes(tokenizer.data(), id)) continue;
    const std::string text = tokenizer.decode(std::array{neighbour, static_cast<int32_t>(id), neighbour});
    if (text.size() < before.size() + after.size() || !text.starts_with(before) || !text.ends_with(after))
      continue;
    tokens[id] = text.substr(before.size(), text.size() - before.size() - after.size());
    // A part of what stands for a control token is none.
    if (has_control && tokens[id].find_first_of(std::string{kControlBegin, kControlEnd}) != std::string::npos)
      tokens[id].clear();
  }
  return create(std::move(tokens), tokenizer.data().end_ids);
}

bool TokenBytes::ends_text(int32_t id) const { return std::ranges::binary_search(end_ids_, id); }

void TokenBytes::build_trie() {
  for (size_t id = 0; id < tokens_.size(); ++id)
    if (!tokens_[id].empty() && tokens_[id].size() <= kMostTokenBytes)
      order_.push_back(static_cast<int32_t>(id));
  const auto bytes_of = [&](int32_t id) -> const std::string& { return tokens_[static_cast<size_t>(id)]; };
  std::ranges::stable_sort(order_, {}, bytes_of);
  std::vector<uint32_t> path;  // nodes from the root to the previous token
  std::string_view before;
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back())
      trie_[path.back()].skip = static_cast<uint32_t>(trie_.size());
  };
  for (uint32_t position = 0; position < order_.size(); ++position) {
    const std::string_view text = bytes_of(order_[position]);
    longest_ = std::max(longest_, text.size());
    const auto common = static_cast<size_t>(std::ranges::mismatch(before, text).in1 - before.begin());
    close(common);
    for (size_t i = common; i < text.size(); ++i) {
      path.push_back(static_cast<uint32_t>(trie_.size()));
      trie_.push_back({0, position, static_cast<uint16_t>(i + 1), static_cast<uint8_t>(text[i])});
    }
    before = text;
  }
  close(0);
  trie_.push_back({0, static_cast<uint32_t>(order_.size()), 0, 0});
}

}  // namespace tessera::grammar
