#include "text/tokenizer/added_tokens.h"

#include <algorithm>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/tokenizer/character.h"

namespace tessera {

Result<AddedTokens> AddedTokens::create(std::span<const AddedToken> tokens, const Normalizer& normalizer) {
  AddedTokens made;
  std::vector<std::string> exact_keys, normalized_keys;
  // The first of equal tokens counts; special ones come before others.
  for (const bool special : {true, false}) {
    for (const AddedToken& token : tokens) {
      if (token.special != special || token.content.empty()) continue;
      NormalizedText content{token.content, {}, 256 * token.content.size() + (size_t{1} << 20)};
      if (token.normalized && normalizer) TSR_RETURN_IF_ERROR(normalizer(content));
      if (std::max(token.content.size(), content.text.size()) > kLongestAddedToken)
        return Status(StatusCode::kUnsupported,
                      format("the added token {} has {} bytes, at most {} are known", quote(token.content),
                             content.text.size(), kLongestAddedToken));
      if (content.text != token.content) made.normalized_texts_.emplace(token.id, content.text);
      (token.normalized ? made.normalized_ : made.exact_).tokens.push_back(token);
      (token.normalized ? normalized_keys : exact_keys).push_back(std::move(content.text));
    }
  }
  const auto index = [](Set& set, const std::vector<std::string>& keys) {
    std::vector<std::pair<std::string_view, int32_t>> pairs;
    for (size_t i = keys.size(); i-- > 0;) pairs.emplace_back(keys[i], static_cast<int32_t>(i));
    set.trie = ByteTrie(std::move(pairs));
  };
  index(made.exact_, exact_keys);
  index(made.normalized_, normalized_keys);
  return made;
}

namespace {

// LiteralParts: whether bytes [begin, end) overlap a literal range; queried in order of `begin`.
class LiteralParts {
 public:
  LiteralParts(std::span<const TextRange> ranges, std::span<const size_t> origins)
      : ranges_(ranges), origins_(origins) {}
  bool overlap(size_t begin, size_t end) {
    if (ranges_.empty()) return false;
    if (!origins_.empty()) {
      end = std::max(origins_[end], origins_[end - 1] + 1);
      begin = origins_[begin];
    }
    while (at_ < ranges_.size() && (ranges_[at_].end <= begin || ranges_[at_].begin == ranges_[at_].end))
      ++at_;
    for (size_t i = at_; i < ranges_.size() && ranges_[i].begin < end; ++i)
      if (ranges_[i].end > begin && ranges_[i].begin < ranges_[i].end) return true;
    return false;
  }

 private:
  const std::span<const TextRange> ranges_;
  const std::span<const size_t> origins_;
  size_t at_ = 0;
};

}  // namespace

std::vector<TextFragment> AddedTokens::split(const Set& set, std::string_view text,
                                             std::span<const size_t> origins, const EncodeOptions& options) {
  std::vector<TextFragment> fragments;
  LiteralParts literal(options.literal, origins);
  size_t done = 0;
  const auto put = [&](size_t begin, size_t end, int32_t token) {
    if (end > begin) fragments.push_back({text.substr(begin, end - begin), begin, token});
  };
  for (size_t at = 0; at < text.size() && !set.trie.is_empty();) {
    const AddedToken* found = nullptr;
    size_t size = 0;
    uint32_t node = ByteTrie::kRoot;
    for (size_t end = at; end < text.size();) {
      node = set.trie.next(node, static_cast<uint8_t>(text[end++]));
      if (node == ByteTrie::kNone) break;
      const int32_t value = set.trie.value(node);
      if (value < 0) continue;
      const AddedToken& token = set.tokens[static_cast<size_t>(value)];
      if ((token.special && !options.parse_special) || literal.overlap(at, end)) continue;
      found = &token;
      size = end - at;
    }
    if (found == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + size;
    at = end;
    if (found->single_word) {
      const bool after_word = begin > 0 && is_word(character_before(text, begin).code);
      const bool before_word = end < text.size() && is_word(character_at(text, end).code);
      if (after_word || before_word) continue;
    }
    while (found->lstrip && begin > done && is_white_space(character_before(text, begin).code))
      begin -= character_before(text, begin).size;
    while (found->rstrip && end < text.size() && is_white_space(character_at(text, end).code))
      end += character_at(text, end).size;
    put(done, begin, -1);
    put(begin, end, found->id);
    done = at = end;
  }
  put(done, text.size(), -1);
  return fragments;
}

std::vector<TextFragment> AddedTokens::split(std::string_view text, const EncodeOptions& options) const {
  return split(exact_, text, {}, options);
}

std::vector<TextFragment> AddedTokens::split_normalized(const NormalizedText& text,
                                                        const EncodeOptions& options) const {
  return split(normalized_, text.text, text.origins, options);
}

}  // namespace tessera
