#include "text/tokenizer/special_tokens.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <unordered_map>

#include "text/tokenizer/character.h"

namespace tessera {

SpecialTokens::SpecialTokens(std::span<const std::string> tokens, std::span<const TokenType> types) {
  std::unordered_map<uint64_t, uint32_t> children;  // (node << 8 | byte) -> node
  matches_.emplace_back();
  for (size_t id = 0; id < types.size(); ++id) {
    const bool always = types[id] == TokenType::kUserDefined;
    const bool on_request = types[id] == TokenType::kControl || types[id] == TokenType::kUnknown;
    if ((!always && !on_request) || tokens[id].empty()) continue;
    uint32_t node = 0;
    for (char character : tokens[id]) {
      const auto byte = static_cast<uint8_t>(character);
      auto [child, fresh] =
          children.try_emplace(uint64_t{node} << 8 | byte, static_cast<uint32_t>(matches_.size()));
      if (fresh) {
        matches_.emplace_back();
        edges_.push_back({node, byte, child->second});
      }
      node = child->second;
    }
    first_[static_cast<uint8_t>(tokens[id][0])] = true;
    Match& match = matches_[node];
    if (always && match.always < 0) match.always = static_cast<int32_t>(id);
    if (match.with_special < 0) match.with_special = static_cast<int32_t>(id);
  }
  std::ranges::sort(edges_);
  first_edge_.assign(matches_.size() + 1, 0);
  for (const Edge& edge : edges_) ++first_edge_[edge.node + 1];
  for (size_t node = 1; node < first_edge_.size(); ++node) first_edge_[node] += first_edge_[node - 1];
}

SpecialTokens::SpecialTokens(const TokenizerData& data, std::span<const TokenType> types)
    : SpecialTokens(data.tokens, types) {
  lstrip_ids_ = data.lstrip_ids;
  rstrip_ids_ = data.rstrip_ids;
  std::ranges::sort(lstrip_ids_);
  std::ranges::sort(rstrip_ids_);
}

uint32_t SpecialTokens::child(uint32_t node, uint8_t byte) const {
  const auto begin = edges_.begin() + first_edge_[node], end = edges_.begin() + first_edge_[node + 1];
  const auto edge = std::ranges::lower_bound(begin, end, byte, {}, &Edge::byte);
  return edge == end || edge->byte != byte ? 0 : edge->child;
}

SpecialTokens::Occurrence SpecialTokens::longest_at(std::string_view text, size_t begin, size_t most,
                                                    bool parse_special) const {
  Occurrence longest{begin, 0, -1};
  const size_t end = most < text.size() - begin ? begin + most : text.size();
  uint32_t node = 0;
  for (size_t at = begin; at < end; ++at) {
    node = child(node, static_cast<uint8_t>(text[at]));
    if (node == 0) break;
    const int32_t token = parse_special ? matches_[node].with_special : matches_[node].always;
    if (token >= 0) longest = {begin, static_cast<uint32_t>(at + 1 - begin), token};
  }
  return longest;
}

void SpecialTokens::choose(std::string_view text, bool parse_special, std::vector<Occurrence>& chain) const {
  if (chain.size() < 2) return;
  const size_t first = chain.front().begin;
  size_t last = 0;
  for (const Occurrence& occurrence : chain) last = std::max(last, occurrence.begin + occurrence.length);
  std::vector<bool> taken(last - first);
  const auto loses = [](const Occurrence& a, const Occurrence& b) {
    return std::tuple(b.length, a.token, a.begin) > std::tuple(a.length, b.token, b.begin);
  };
  // If the longest token overlaps a winner, the longest that still fits is used.
  std::vector<Occurrence> candidates = std::move(chain);
  chain.clear();
  std::ranges::make_heap(candidates, loses);
  while (!candidates.empty()) {
    std::ranges::pop_heap(candidates, loses);
    const Occurrence next = candidates.back();
    candidates.pop_back();
    const auto begin = taken.begin() + static_cast<ptrdiff_t>(next.begin - first), end = begin + next.length;
    const auto free = std::find(begin, end, true) - begin;
    if (free == next.length) {
      std::fill(begin, end, true);
      chain.push_back(next);
    } else if (free > 0) {
      const Occurrence shorter = longest_at(text, next.begin, static_cast<size_t>(free), parse_special);
      if (shorter.length == 0) continue;
      candidates.push_back(shorter);
      std::ranges::push_heap(candidates, loses);
    }
  }
  std::ranges::sort(chain, {}, &Occurrence::begin);
}

std::vector<TextFragment> SpecialTokens::split(std::string_view text, const EncodeOptions& options) const {
  std::vector<TextFragment> fragments;
  std::vector<Occurrence> chain;
  size_t position = 0, chain_end = 0;
  const auto put = [&](size_t begin, size_t end, int32_t token) {
    if (end > begin) fragments.push_back({text.substr(begin, end - begin), begin, token});
  };
  const auto flush = [&] {
    choose(text, options.parse_special, chain);
    for (const Occurrence& occurrence : chain) {
      size_t begin = occurrence.begin, end = begin + occurrence.length;
      if (std::ranges::binary_search(lstrip_ids_, occurrence.token))
        while (begin > position && is_white_space(character_before(text, begin).code))
          begin -= character_before(text, begin).size;
      if (std::ranges::binary_search(rstrip_ids_, occurrence.token))
        while (end < text.size() && is_white_space(character_at(text, end).code))
          end += character_at(text, end).size;
      put(position, begin, -1);
      put(occurrence.begin, occurrence.begin + occurrence.length, occurrence.token);
      position = std::max(position, end);
    }
    chain.clear();
  };
  auto literal = options.literal.begin();
  for (size_t begin = 0; begin < text.size(); ++begin) {
    while (literal != options.literal.end() && (literal->end <= begin || literal->begin == literal->end))
      ++literal;
    const size_t limit = literal == options.literal.end() ? text.size() : literal->begin;
    if (limit <= begin) {
      begin = literal->end - 1;
      continue;
    }
    if (!first_[static_cast<uint8_t>(text[begin])]) continue;
    const size_t most = std::min<size_t>(limit - begin, std::numeric_limits<uint32_t>::max());
    const Occurrence longest = longest_at(text, begin, most, options.parse_special);
    if (longest.length == 0) continue;
    if (begin >= chain_end) flush();
    chain.push_back(longest);
    chain_end = std::max(chain_end, begin + longest.length);
  }
  flush();
  put(position, text.size(), -1);
  return fragments;
}

}  // namespace tessera
