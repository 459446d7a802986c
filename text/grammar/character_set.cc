#include "text/grammar/character_set.h"

#include <algorithm>

namespace tessera::grammar {
namespace {

constexpr uint32_t kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

size_t encode(uint32_t character, std::array<uint8_t, 4>& bytes) {
  const auto continuation = [&](int shift) {
    return static_cast<uint8_t>(0x80 | ((character >> shift) & 0x3F));
  };
  if (character < 0x80) {
    bytes = {static_cast<uint8_t>(character)};
    return 1;
  }
  if (character < 0x800) {
    bytes = {static_cast<uint8_t>(0xC0 | (character >> 6)), continuation(0)};
    return 2;
  }
  if (character < 0x10000) {
    bytes = {static_cast<uint8_t>(0xE0 | (character >> 12)), continuation(6), continuation(0)};
    return 3;
  }
  bytes = {static_cast<uint8_t>(0xF0 | (character >> 18)), continuation(12), continuation(6),
           continuation(0)};
  return 4;
}

// Splits a range into products of byte ranges: at changes of length, and where
// a continuation byte does not span 80 to BF while an earlier byte changes.
void append_utf8(CharacterRange range, std::vector<Utf8Range>& out) {
  std::vector<CharacterRange> left{range};
  while (!left.empty()) {
    const uint32_t first = left.back().first, last = left.back().last;
    left.pop_back();
    bool was_split = false;
    const auto split_after = [&](uint32_t end) {  // splits into [first, end] and the rest
      left.push_back({end + 1, last});
      left.push_back({first, end});
      was_split = true;
    };
    for (const uint32_t end : {0x7Fu, 0x7FFu, 0xFFFFu})
      if (!was_split && first <= end && end < last) split_after(end);
    for (int bits = 6; !was_split && bits <= 18 && last >= 0x80; bits += 6) {
      const uint32_t mask = (1u << bits) - 1;
      if ((first & ~mask) == (last & ~mask)) break;
      if ((first & mask) != 0)
        split_after(first | mask);
      else if ((last & mask) != mask)
        split_after((last & ~mask) - 1);
    }
    if (was_split) continue;
    Utf8Range bytes;
    bytes.size = encode(first, bytes.first);
    encode(last, bytes.last);
    out.push_back(bytes);
  }
}

}  // namespace

CharacterSet::CharacterSet(std::vector<CharacterRange> ranges) {
  std::vector<CharacterRange> valid;
  for (auto [first, last] : ranges) {
    last = std::min(last, kLastCharacter);
    if (first > last) continue;
    if (first < kFirstSurrogate) valid.push_back({first, std::min(last, kFirstSurrogate - 1)});
    if (last > kLastSurrogate) valid.push_back({std::max(first, kLastSurrogate + 1), last});
  }
  std::ranges::sort(valid, {}, &CharacterRange::first);
  for (const CharacterRange& range : valid) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1)
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    else
      ranges_.push_back(range);
  }
}

bool CharacterSet::contains(uint32_t character) const {
  const auto after = std::ranges::upper_bound(ranges_, character, {}, &CharacterRange::first);
  return after != ranges_.begin() && character <= std::prev(after)->last;
}

CharacterSet CharacterSet::complement() const {
  std::vector<CharacterRange> others;
  uint32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) others.push_back({next, first - 1});
    next = last + 1;
  }
  if (next <= kLastCharacter) others.push_back({next, kLastCharacter});
  return CharacterSet(std::move(others));
}

CharacterSet CharacterSet::without(const CharacterSet& other) const {
  // A minus B: the complement of (not A, or B).
  std::vector<CharacterRange> excluded = complement().ranges_;
  excluded.insert(excluded.end(), other.ranges_.begin(), other.ranges_.end());
  return CharacterSet(std::move(excluded)).complement();
}

std::vector<Utf8Range> utf8_ranges(const CharacterSet& set) {
  std::vector<Utf8Range> ranges;
  for (const CharacterRange& range : set.ranges()) append_utf8(range, ranges);
  return ranges;
}

}  // namespace tessera::grammar
