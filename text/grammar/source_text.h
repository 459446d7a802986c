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
  // Place: the form of positions in messages.
  enum class Place : uint8_t { kByte, kLine };

  // kInvalidArgument, beginning with `what`, for a text above `most` bytes or invalid UTF-8.
  static Result<SourceText> create(std::string_view text, std::string_view what, Place place, size_t most);

  bool is_at_end() const { return at_ == text_.size(); }
  uint32_t peek() const;             // the next character
  uint32_t take();                   // consumes and returns the next character
  bool take(std::string_view text);  // consumes `text` if it comes next
  bool starts_with(std::string_view text) const { return text_.substr(at_).starts_with(text); }
  size_t at() const { return at_; }
  void move_to(size_t at) { at_ = at; }
  std::string_view between(size_t begin, size_t end) const { return text_.substr(begin, end - begin); }

  // Reads a decimal number of at most `most`; a digit must come next.
  Result<uint32_t> take_number(uint32_t most);
  // Reads a character of exactly `digits` hexadecimal digits.
  Result<uint32_t> take_hex(int digits);

  // "regular expression, byte 7: found 'x', wanted y", for the next character or the byte at `at`.
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

// Length of the longest valid UTF-8 prefix.
size_t valid_utf8(std::string_view text);

}  // namespace tessera::grammar
