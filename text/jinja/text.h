// Text: a template's string, immutable and cheap to copy, with the origin of each character.
// Characters are code points, as in Python; bytes are UTF-8. TextBuilder builds texts piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "text/jinja/budget.h"
#include "text/jinja/origin.h"

namespace tessera::jinja {

// Run: consecutive bytes of one origin, up to `end`.
struct Run {
  size_t end = 0;
  Origin origin;
  bool operator==(const Run&) const = default;
};

class Text {
 public:
  Text() = default;  // empty
  // A text that exists before rendering, of the template or the caller. Invalid UTF-8 becomes U+FFFD.
  static Text of(std::string_view bytes, Source source = kTemplate);

  std::string_view bytes() const { return rep_ ? std::string_view(rep_->bytes) : std::string_view(); }
  size_t size() const { return rep_ ? rep_->bytes.size() : 0; }
  bool empty() const { return size() == 0; }
  const std::vector<Run>& runs() const;
  // The common source of all characters; kData if there are several in addition to the template.
  Source source() const { return rep_ ? rep_->source : kTemplate; }

  int64_t length() const { return rep_ ? rep_->code_points : 0; }
  bool is_ascii() const { return length() == static_cast<int64_t>(size()); }
  // Byte of code point `index`; 0 <= index <= length().
  size_t byte_of(int64_t index) const;
  int64_t index_of_byte(size_t byte) const;

  // Marked as HTML by `safe`: concatenation escapes the other operand.
  bool is_markup() const { return markup_; }
  Text with_markup(bool markup) const {
    Text text = *this;
    text.markup_ = markup;
    return text;
  }

 private:
  friend class TextBuilder;
  struct Rep {
    std::string bytes;
    std::vector<Run> runs;
    int64_t code_points = 0;
    Source source = kTemplate;
    Lease lease;
  };
  std::shared_ptr<const Rep> rep_;
  bool markup_ = false;
};

class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget) : budget_(budget) {}

  Status add(std::string_view bytes, Origin origin);
  Status add(std::string_view bytes, Source source = kTemplate) { return add(bytes, Origin{source, false}); }
  Status add(const Text& text) { return add(text, 0, text.size()); }
  Status add(const Text& text, size_t begin, size_t end);  // a byte range
  void mark_generation();                                  // of the whole text so far
  void expect(size_t bytes) { bytes_.reserve(bytes); }     // reserves bytes that are leased elsewhere
  Budget& budget() const { return budget_; }
  size_t size() const { return bytes_.size(); }
  const std::string& bytes() const { return bytes_; }
  Result<Text> finish();  // empties the builder

 private:
  Status reserve(size_t more);
  void add_run(Origin origin);

  Budget& budget_;
  std::string bytes_;
  std::vector<Run> runs_;
  Lease lease_;
};

// Bytes [begin, end) of a text.
Result<Text> slice(Budget& budget, const Text& text, size_t begin, size_t end);

// ---- UTF-8, valid everywhere inside texts

// The code point at `at`; `size` receives its bytes.
uint32_t code_point_at(std::string_view bytes, size_t at, size_t& size);
void append_utf8(std::string& out, uint32_t code_point);
// Replaces each maximal invalid part by one U+FFFD (graph/base/utf8.h).
std::string valid_utf8(std::string_view bytes);
int64_t count_code_points(std::string_view bytes);

// As Python's str.isspace.
bool is_space(uint32_t code_point);

}  // namespace tessera::jinja
