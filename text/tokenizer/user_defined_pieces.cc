#include "text/tokenizer/user_defined_pieces.h"

#include <algorithm>
#include <utility>

#include "text/tokenizer/character.h"

namespace tessera {
namespace {

bool is_blank_text(std::string_view text) {
  constexpr int32_t kSpaceSymbol = 0x2581;  // ▁
  for (size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    if (character.code != kSpaceSymbol && !is_white_space(character.code)) return false;
    at += character.size;
  }
  return true;
}

}  // namespace

bool LiteralBytes::overlap(size_t begin, size_t end) const {
  auto range = std::ranges::partition_point(ranges_, [&](const TextRange& it) { return it.end <= begin; });
  while (range != ranges_.end() && range->begin == range->end) ++range;
  return range != ranges_.end() && range->begin < end;
}

UserDefinedPieces::UserDefinedPieces(const TokenizerData& data, size_t pieces) : blank_(pieces) {
  std::vector<std::pair<std::string_view, int32_t>> keys;
  for (size_t id = 0; id < pieces; ++id) {
    if (data.types[id] != TokenType::kUserDefined) continue;
    keys.emplace_back(data.tokens[id], static_cast<int32_t>(id));
    blank_[id] = is_blank_text(data.tokens[id]);
  }
  trie_ = ByteTrie(std::move(keys));
}

}  // namespace tessera
