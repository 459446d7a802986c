#include "engine/serving/texts/ngram_drafts.h"

#include <algorithm>

namespace tessera {

namespace {

uint64_t hash_of(std::span<const int32_t> tokens) {
  uint64_t hash = 0x9e3779b97f4a7c15;
  for (const int32_t token : tokens)
    hash = (hash ^ static_cast<uint32_t>(token)) * 0xff51afd7ed558ccd + (hash >> 29);
  return hash;
}

}  // namespace

std::span<const int32_t> NgramDrafts::propose(std::span<const int32_t> tokens, size_t most) {
  // Excludes the last place, which nothing follows yet.
  for (; indexed_ < tokens.size(); ++indexed_)
    next_position_[hash_of(tokens.subspan(indexed_ - kLength, kLength))] = indexed_;
  if (tokens.size() < kLength) return {};
  const std::span<const int32_t> last = tokens.last(kLength);
  const auto found = next_position_.find(hash_of(last));
  if (found == next_position_.end()) return {};
  const size_t at = found->second;
  if (!std::ranges::equal(tokens.subspan(at - kLength, kLength), last)) return {};
  return tokens.subspan(at, std::min(most, tokens.size() - at));
}

}  // namespace tessera
