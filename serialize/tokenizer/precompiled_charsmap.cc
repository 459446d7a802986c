// The charsmap of SentencePiece: a double array that finds a text's prefixes, and NUL-ended replacements.
#include <utf8proc.h>

#include <cstring>
#include <memory>
#include <optional>

#include "graph/base/text.h"
#include "serialize/tokenizer/base64.h"
#include "serialize/tokenizer/character.h"
#include "serialize/tokenizer/normalizers.h"

namespace tessera {
namespace {

class Charsmap {
 public:
  static Result<std::shared_ptr<const Charsmap>> create(std::string_view bytes) {
    uint32_t size = 0;
    if (bytes.size() >= sizeof size) std::memcpy(&size, bytes.data(), sizeof size);
    if (bytes.size() < sizeof size || size % 4 != 0 || size > bytes.size() - sizeof size)
      return Status(
          StatusCode::kInvalidArgument,
          format("precompiled_charsmap has {} bytes and a table of {}: they do not fit", bytes.size(), size));
    auto made = std::make_shared<Charsmap>();
    made->units_.resize(size / 4);
    if (size > 0) std::memcpy(made->units_.data(), bytes.data() + sizeof size, size);
    made->replacements_ = bytes.substr(sizeof size + size);
    return std::shared_ptr<const Charsmap>(std::move(made));
  }

  // What a text that begins with an entry becomes, as the reference reads it: by the shortest such entry.
  std::optional<std::string_view> find(std::string_view text) const {
    if (units_.empty()) return {};
    size_t at = offset(units_[0]);
    for (const char c : text) {
      const auto byte = static_cast<uint8_t>(c);
      if (byte == 0) return {};
      at ^= byte;
      if (at >= units_.size() || label(units_[at]) != byte) return {};
      const bool leaf = (units_[at] >> 8 & 1) != 0;
      at ^= offset(units_[at]);
      if (!leaf) continue;
      if (at >= units_.size()) return {};
      const size_t begin = units_[at] & 0x7fffffff;
      if (begin >= replacements_.size()) return {};
      return std::string_view(replacements_).substr(begin, replacements_.find('\0', begin) - begin);
    }
    return {};
  }

 private:
  static size_t offset(uint32_t unit) { return static_cast<size_t>(unit >> 10) << ((unit & 1u << 9) >> 6); }
  static uint32_t label(uint32_t unit) { return unit & (1u << 31 | 0xff); }

  std::vector<uint32_t> units_;
  std::string replacements_;
};

size_t grapheme_end(std::string_view text, size_t begin) {
  Character before = character_at(text, begin);
  utf8proc_int32_t state = 0;
  size_t end = begin + before.size;
  while (end < text.size()) {
    const Character next = character_at(text, end);
    if (before.code < 0 || next.code < 0) break;
    if (before.code < 0x300 && next.code < 0x300 && !(before.code == '\r' && next.code == '\n')) break;
    if (utf8proc_grapheme_break_stateful(before.code, next.code, &state)) break;
    end += next.size;
    before = next;
  }
  return end;
}

Status apply(const Charsmap& map, NormalizedText& text) {
  NormalizedTextBuilder to(text);
  const std::string_view from = text.text;
  for (size_t at = 0; at < from.size();) {
    const size_t end = grapheme_end(from, at);
    if (end - at < 6) {
      if (const auto replacement = map.find(from.substr(at, end - at))) {
        to.put(*replacement, at);
        TSR_RETURN_IF_ERROR(to.check_size());
        at = end;
        continue;
      }
    }
    while (at < end) {
      const size_t size = character_at(from, at).size;
      if (const auto replacement = map.find(from.substr(at, size))) {
        to.put(*replacement, at);
        TSR_RETURN_IF_ERROR(to.check_size());
      } else {
        to.copy(at, at + size);
      }
      at += size;
    }
  }
  text = to.take();
  return {};
}

}  // namespace

Result<Normalizer> make_precompiled_normalizer(std::string_view base64) {
  TSR_ASSIGN_OR_RETURN(const std::string bytes, decode_base64(base64, "precompiled_charsmap"));
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<const Charsmap> map, Charsmap::create(bytes));
  return Normalizer([map](NormalizedText& text) { return apply(*map, text); });
}

}  // namespace tessera
