// Text: a string of a template, immutable and cheap to copy. Each character knows its origin. Characters are code
// points, as in Python; bytes are UTF-8. TextBuilder makes texts piece by piece.
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

// Consecutive bytes of one origin, up to `end`.
struct Run {
  size_t end = 0;
  Origin origin;
  bool operator==(const Run&) const = default;
};

class Text {
 public:
  Text() = default;  // empty
  // A text that is there before rendering: of the template, or of the caller. Invalid UTF-8 becomes U+FFFD.
  static Text of(std::string_view bytes, Source source = kTemplate);

  std::string_view bytes() const { return rep_ ? std::string_view(rep_->bytes) : std::string_view(); }
  size_t size() const { return rep_ ? rep_->bytes.size() : 0; }
  bool empty() const { return size() == 0; }
  const std::vector<Run>& runs() const;
  // The common source of all characters; kData where there are several besides the template.
  Source source() const { return rep_ ? rep_->source : kTemplate; }

  int64_t length() const { return rep_ ? rep_->code_points : 0; }
  bool is_ascii() const { return length() == static_cast<int64_t>(size()); }
  // Byte at which code point `index` begins; 0 <= index <= length().
  size_t byte_of(int64_t index) const;
  int64_t index_of_byte(size_t byte) const;

  // Marked as HTML by `safe`: adding to it escapes the other side.
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
  Status add(const Text& text, size_t begin, size_t end);  // bytes
  void mark_generation();                                  // all so far
  void expect(size_t bytes) { bytes_.reserve(bytes); }     // once they are leased elsewhere
  Budget& budget() const { return budget_; }
  size_t size() const { return bytes_.size(); }
  const std::string& bytes() const { return bytes_; }
  Result<Text> finish();  // and is empty again

 private:
  Status reserve(size_t more);
  void add_run(Origin origin);

  Budget& budget_;
  std::string bytes_;
  std::vector<Run> runs_;
  Lease lease_;
};

// Bytes begin to end of a text.
Result<Text> slice(Budget& budget, const Text& text, size_t begin, size_t end);

// ---- UTF-8, valid everywhere inside texts

// The code point that begins at `at`, and its bytes in `size`.
uint32_t code_point_at(std::string_view bytes, size_t at, size_t& size);
void append_utf8(std::string& out, uint32_t code_point);
// With U+FFFD for what is no character, once for each maximal part of one (graph/base/utf8.h).
std::string valid_utf8(std::string_view bytes);
int64_t count_code_points(std::string_view bytes);

// As Python's str.isspace.
bool is_space(uint32_t code_point);

}  // namespace tessera::jinja
