// Unicode's normal forms, computed on independent parts.
#include <utf8proc.h>

#include <algorithm>

#include "text/tokenizer/character.h"
#include "text/tokenizer/normalizers.h"
#include "text/tokenizer/unicode_versions.h"

namespace tessera {
namespace {

constexpr int32_t kInvalid = -1;

// Whether the decomposed character can neither be reordered before, nor composed with, the preceding text.
bool begins_part(int32_t code) {
  if (code < 0x300) return true;
  const utf8proc_property_t& property = *utf8proc_get_property(code);
  const bool jamo = code >= 0x1160 && code <= 0x11ff;
  const auto category = utf8proc_category(code);
  const bool mark = category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
  return property.combining_class == 0 && !mark && !jamo;
}

struct Decomposed {
  int32_t code;
  size_t at;  // offset in the source
};

class Part {
 public:
  Part(NormalizedTextBuilder& to, UnicodeForm form) : to_(to), form_(form) {}

  void add(int32_t code, size_t at) { characters_.push_back({code, at}); }

  void end() {
    if (characters_.empty()) return;
    reorder();
    if (form_ == UnicodeForm::kNfc || form_ == UnicodeForm::kNfkc) compose();
    for (const Decomposed& character : characters_) {
      append_character(to_.text(), character.code);
      to_.mark(character.at);
    }
    characters_.clear();
  }

 private:
  static int class_of(int32_t code) { return utf8proc_get_property(code)->combining_class; }

  void reorder() {
    for (size_t i = 0; i < characters_.size();) {
      if (class_of(characters_[i].code) == 0) {
        ++i;
        continue;
      }
      size_t end = i + 1;
      while (end < characters_.size() && class_of(characters_[end].code) != 0) ++end;
      std::stable_sort(
          characters_.begin() + static_cast<ptrdiff_t>(i), characters_.begin() + static_cast<ptrdiff_t>(end),
          [](const Decomposed& a, const Decomposed& b) { return class_of(a.code) < class_of(b.code); });
      i = end;
    }
  }

  // The library composes; a vanished character was joined to an earlier one.
  void compose() {
    codes_.clear();
    for (const Decomposed& character : characters_) codes_.push_back(character.code);
    const auto left =
        utf8proc_normalize_utf32(codes_.data(), static_cast<utf8proc_ssize_t>(codes_.size()),
                                 static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    const size_t count = left < 0 ? characters_.size() : static_cast<size_t>(left);
    if (count < characters_.size()) {
      // An existing code keeps its place; a new one gets the start of the part.
      size_t from = 0;
      std::vector<Decomposed> composed;
      for (size_t i = 0; i < count; ++i) {
        size_t same = from;
        while (same < characters_.size() && characters_[same].code != codes_[i]) ++same;
        if (same < characters_.size()) from = same;
        composed.push_back({codes_[i], characters_[std::min(from, characters_.size() - 1)].at});
        ++from;
      }
      characters_.swap(composed);
    } else {
      for (size_t i = 0; i < count; ++i) characters_[i].code = codes_[i];
    }
  }

  NormalizedTextBuilder& to_;
  const UnicodeForm form_;
  std::vector<Decomposed> characters_;
  std::vector<utf8proc_int32_t> codes_;
};

}  // namespace

void normalize_unicode(NormalizedText& text, UnicodeForm form) {
  const auto plain = [&](size_t at) { return static_cast<unsigned char>(text.text[at]) < 0x80; };
  size_t first = 0;
  while (first < text.text.size() && plain(first)) ++first;
  if (first == text.text.size()) return;
  NormalizedTextBuilder to(text);
  Part part(to, form);
  const bool compatible = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> codes(32);
  for (size_t at = 0; at < text.text.size();) {
    // ASCII is unchanged, except that the last character may compose with the next.
    size_t end = at;
    while (end < text.text.size() && plain(end)) ++end;
    if (end > at + 1) {
      part.end();
      const size_t before = end < text.text.size() ? end - 1 : end;
      to.copy(at, before);
      at = before;
      if (at == text.text.size()) break;
    }
    const Character character = character_at(text.text, at);
    if (character.code == kInvalid) {
      part.end();
      to.copy(at, at + character.size);
      at += character.size;
      continue;
    }
    if (is_after_unicode_9(
            character.code)) {  // unknown to these forms: never decomposed, composed or moved
      part.end();
      to.copy(at, at + character.size);
      at += character.size;
      continue;
    }
    int last_class = 0;
    auto count = utf8proc_decompose_char(character.code, codes.data(),
                                         static_cast<utf8proc_ssize_t>(codes.size()), options, &last_class);
    if (count <= 0 || static_cast<size_t>(count) > codes.size()) {
      codes[0] = character.code;
      count = 1;
    }
    for (utf8proc_ssize_t i = 0; i < count; ++i) {
      if (begins_part(codes[static_cast<size_t>(i)])) part.end();
      part.add(codes[static_cast<size_t>(i)], at);
    }
    at += character.size;
  }
  part.end();
  text = to.take();
}

}  // namespace tessera
