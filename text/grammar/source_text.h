// SourceText: the text of a grammar, read character by character. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "graph/base/result.h"

namespace tessera::grammar {

class SourceText {
 public:
  static constexpr uint32_t kNoCharacter = UINT32_MAX;  // past the end
  // How messages give a place.
  enum class Place : uint8_t { kByte, kLine };

  // kInvalidArgument, beginning with `what` it is, for a text that is longer than `most` bytes or not UTF-8.
  static Result<SourceText> create(std::string_view text, std::string_view what, Place place, size_t most);

  bool is_at_end() const { return at_ == text_.size(); }
  uint32_t peek() const;             // the next character
  uint32_t take();                   // and moves past it
  bool take(std::string_view text);  // whether it comes next
  bool starts_with(std::string_view text) const { return text_.substr(at_).starts_with(text); }
  size_t at() const { return at_; }
  void move_to(size_t at) { at_ = at; }
  std::string_view between(size_t begin, size_t end) const { return text_.substr(begin, end - begin); }

  // A number of decimal digits, at most `most`. At a digit.
  Result<uint32_t> take_number(uint32_t most);
  // A character of exactly `digits` hexadecimal digits.
  Result<uint32_t> take_hex(int digits);

  // "regular expression, byte 7: found 'x', wanted y", of the next character or of the byte at `at`.
  Status wanted(std::string_view what) const { return wanted(what, at_); }
  Status wanted(std::string_view what, size_t at) const;
  Status unsupported(std::string_view what, size_t at) const;  // "..., byte 7: look-ahead is not supported"
  std::string place(size_t at) const;

 private:
  SourceText(std::string_view text, std::string_view what, Place place)
      : text_(text), what_(what), place_(place) {}
  std::string_view text_;
  std::string what_;
  Place place_;
  size_t at_ = 0;
};

// The length of the valid UTF-8 that a text begins with.
size_t valid_utf8(std::string_view text);

}  // namespace tessera::grammar
