// CharacterSet: a set of Unicode characters, and its encoding in UTF-8. A value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::grammar {

inline constexpr uint32_t kLastCharacter = 0x10FFFF;

// Code points first to last, inclusive.
struct CharacterRange {
  uint32_t first = 0, last = 0;
  bool operator==(const CharacterRange&) const = default;
};

class CharacterSet {
 public:
  CharacterSet() = default;
  // Ranges in any order; surrogates and values above kLastCharacter are dropped.
  explicit CharacterSet(std::vector<CharacterRange> ranges);

  std::span<const CharacterRange> ranges() const { return ranges_; }  // ascending, not adjacent
  bool is_empty() const { return ranges_.empty(); }
  bool contains(uint32_t character) const;
  CharacterSet complement() const;
  CharacterSet without(const CharacterSet& other) const;

 private:
  std::vector<CharacterRange> ranges_;
};

// Utf8Range: the encodings of a range of characters, one range per byte.
struct Utf8Range {
  size_t size = 0;  // 1 to 4 bytes
  std::array<uint8_t, 4> first{}, last{};
};
// Disjoint; their union is exactly the set.
std::vector<Utf8Range> utf8_ranges(const CharacterSet& set);

}  // namespace tessera::grammar
