#include "serialize/tokenizer/special_tokens.h"

#include <algorithm>
#include <tuple>

namespace tessera {

SpecialTokens::SpecialTokens(std::span<const std::string> tokens, std::span<const TokenType> types) {
  matches_.emplace_back();
  for (size_t id = 0; id < types.size(); ++id) {
    const bool always = types[id] == TokenType::kUserDefined;
    const bool on_request = types[id] == TokenType::kControl || types[id] == TokenType::kUnknown;
    if ((!always && !on_request) || tokens[id].empty()) continue;
    uint32_t node = 0;
    for (char character : tokens[id]) {
      const uint64_t key = uint64_t{node} << 8 | static_cast<uint8_t>(character);
      auto [edge, fresh] = edges_.try_emplace(key, static_cast<uint32_t>(matches_.size()));
      if (fresh) matches_.emplace_back();
      node = edge->second;
    }
    first_[static_cast<uint8_t>(tokens[id][0])] = true;
    Match& match = matches_[node];
    if (always && match.always < 0) match.always = static_cast<int32_t>(id);
    if (match.with_special < 0) match.with_special = static_cast<int32_t>(id);
  }
}

uint32_t SpecialTokens::child(uint32_t node, uint8_t byte) const {
  auto edge = edges_.find(uint64_t{node} << 8 | byte);
  return edge == edges_.end() ? 0 : edge->second;
}

std::vector<TextFragment> SpecialTokens::split(std::string_view text, bool parse_special) const {
  struct Occurrence {
    size_t begin, length;
    int32_t token;
  };
  std::vector<Occurrence> occurrences;
  for (size_t begin = 0; begin < text.size(); ++begin) {
    if (!first_[static_cast<uint8_t>(text[begin])]) continue;
    uint32_t node = 0;
    for (size_t end = begin; end < text.size(); ++end) {
      node = child(node, static_cast<uint8_t>(text[end]));
      if (node == 0) break;
      const int32_t token = parse_special ? matches_[node].with_special : matches_[node].always;
      if (token >= 0) occurrences.push_back({begin, end + 1 - begin, token});
    }
  }
  if (occurrences.empty()) {
    if (text.empty()) return {};
    return {{text, -1}};
  }

  std::ranges::sort(occurrences, [](const Occurrence& a, const Occurrence& b) {
    return std::tuple(b.length, a.token, a.begin) < std::tuple(a.length, b.token, b.begin);
  });
  // Whatever is taken is at least as long as what comes later, so an overlap covers one of the later one's
  // ends.
  std::vector<bool> taken(text.size());
  std::vector<Occurrence> kept;
  for (const Occurrence& occurrence : occurrences) {
    const size_t end = occurrence.begin + occurrence.length;
    if (taken[occurrence.begin] || taken[end - 1]) continue;
    std::fill(taken.begin() + static_cast<ptrdiff_t>(occurrence.begin),
              taken.begin() + static_cast<ptrdiff_t>(end), true);
    kept.push_back(occurrence);
  }
  std::ranges::sort(kept, {}, &Occurrence::begin);

  std::vector<TextFragment> fragments;
  size_t position = 0;
  for (const Occurrence& occurrence : kept) {
    if (occurrence.begin > position)
      fragments.push_back({text.substr(position, occurrence.begin - position), -1});
    fragments.push_back({text.substr(occurrence.begin, occurrence.length), occurrence.token});
    position = occurrence.begin + occurrence.length;
  }
  if (position < text.size()) fragments.push_back({text.substr(position), -1});
  return fragments;
}

}  // namespace tessera
