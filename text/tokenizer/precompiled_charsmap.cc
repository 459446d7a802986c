// The normalizer Precompiled: a charsmap applied per grapheme, as in the library `tokenizers`.
#include <utf8proc.h>

#include <memory>

#include "text/tokenizer/base64.h"
#include "text/tokenizer/character.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/normalizers.h"

namespace tessera {
namespace {

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
      if (const auto replacement = map.find_shortest(from.substr(at, end - at))) {
        to.put(*replacement, at);
        TSR_RETURN_IF_ERROR(to.check_size());
        at = end;
        continue;
      }
    }
    while (at < end) {
      const size_t size = character_at(from, at).size;
      if (const auto replacement = map.find_shortest(from.substr(at, size))) {
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
