#include "text/tokenizer/normalizers.h"

#include <nlohmann/json.hpp>

#include "text/tokenizer/byte_characters.h"
#include "text/tokenizer/character.h"
#include "text/tokenizer/json_members.h"
#include "text/tokenizer/pattern.h"

namespace tessera {
namespace {

using nlohmann::json;
constexpr std::string_view kKnown =
    "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, BertNormalizer, Replace, Prepend, Precompiled, "
    "Nmt, "
    "ByteLevel, Sequence";
constexpr int kMostNested = 32;

// Calls use(code, begin, end) for every character.
template <class Use>
void for_each_character(std::string_view text, Use&& use) {
  for (size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    use(character.code, at, at + character.size);
    at += character.size;
  }
}

template <class Keep>
void keep_characters(NormalizedText& text, Keep&& keep) {
  NormalizedTextBuilder to(text);
  for_each_character(text.text, [&](int32_t code, size_t begin, size_t end) {
    if (keep(code)) to.copy(begin, end);
  });
  text = to.take();
}

void lower_case(NormalizedText& text) {
  NormalizedTextBuilder to(text);
  for_each_character(text.text, [&](int32_t code, size_t begin, size_t end) {
    if (code < 0) return to.copy(begin, end);
    if (code < 0x80)
      to.text() += static_cast<char>(code >= 'A' && code <= 'Z' ? code | 32 : code);
    else
      append_lower_case(to.text(), code);
    to.mark(begin);
  });
  text = to.take();
}

void strip(NormalizedText& text, bool left, bool right) {
  size_t begin = 0, end = text.text.size();
  while (left && begin < end) {
    const Character character = character_at(text.text, begin);
    if (!is_white_space(character.code)) break;
    begin += character.size;
  }
  while (right && end > begin) {
    const Character character = character_before(text.text, end);
    if (!is_white_space(character.code)) break;
    end -= character.size;
  }
  if (begin == 0 && end == text.text.size()) return;
  NormalizedTextBuilder to(text);
  to.copy(begin, end);
  text = to.take();
}

struct BertSettings {
  bool clean_text, handle_chinese_chars, strip_accents, lowercase;
};

void normalize_bert(NormalizedText& text, const BertSettings& settings) {
  NormalizedTextBuilder to(text);
  for_each_character(text.text, [&](int32_t code, size_t begin, size_t end) {
    if (settings.clean_text) {
      const bool space = code == '\t' || code == '\n' || code == '\r' || is_white_space(code);
      const bool control = code != '\t' && code != '\n' && code != '\r' && code >= 0 && is_other(code);
      if (code == 0 || code == 0xfffd || control) return;
      if (space) return to.put(" ", begin);
    }
    const bool gets_spaces = settings.handle_chinese_chars && is_chinese(code);
    if (gets_spaces) to.put(" ", begin);
    to.copy(begin, end);
    if (gets_spaces) to.put(" ", end - 1);
  });
  text = to.take();
  if (settings.strip_accents) {
    normalize_unicode(text, UnicodeForm::kNfd);
    keep_characters(text, [](int32_t code) { return code < 0x300 || !is_nonspacing_mark(code); });
  }
  if (settings.lowercase) lower_case(text);
}

void normalize_nmt(NormalizedText& text) {
  NormalizedTextBuilder to(text);
  for_each_character(text.text, [&](int32_t code, size_t begin, size_t end) {
    const bool dropped = (code >= 1 && code <= 8) || code == 0xb || (code >= 0xe && code <= 0x1f) ||
                         code == 0x7f || code == 0x8f || code == 0x9f;
    const bool space = code == 0x9 || code == 0xa || code == 0xc || code == 0xd || code == 0x1680 ||
                       (code >= 0x200b && code <= 0x200f) || code == 0x2028 || code == 0x2029 ||
                       code == 0x2581 || code == 0xfeff || code == 0xfffd;
    if (space)
      to.put(" ", begin);
    else if (!dropped)
      to.copy(begin, end);
  });
  text = to.take();
}

Status replace(NormalizedText& text, const Pattern& pattern, const std::string& content) {
  PatternSearch search(pattern, text.text);
  NormalizedTextBuilder to(text);
  size_t done = 0;
  while (search.next()) {
    to.copy(done, search.begin());
    to.put(content, search.begin());
    done = search.end();
    TSR_RETURN_IF_ERROR(to.check_size());
  }
  TSR_RETURN_IF_ERROR(search.status());
  to.copy(done, text.text.size());
  text = to.take();
  return {};
}

// Plain texts, the frequent case, need no pattern search.
Status replace(NormalizedText& text, const std::string& from, const std::string& content) {
  NormalizedTextBuilder to(text);
  size_t done = 0;
  for (size_t found; (found = text.text.find(from, done)) != std::string::npos; done = found + from.size()) {
    to.copy(done, found);
    to.put(content, found);
    TSR_RETURN_IF_ERROR(to.check_size());
  }
  to.copy(done, text.text.size());
  text = to.take();
  return {};
}

Normalizer always(void (*apply)(NormalizedText&)) {
  return [apply](NormalizedText& text) {
    apply(text);
    return Status();
  };
}

Result<Normalizer> make(const json& description, int depth);

Result<Normalizer> make_sequence(const JsonMembers& members, int depth) {
  const json& list = members.at("normalizers");
  if (!list.is_array()) return members.wrong("normalizers", "a list");
  std::vector<Normalizer> steps;
  for (const json& step : list) {
    TSR_ASSIGN_OR_RETURN(Normalizer made, make(step, depth + 1));
    if (made) steps.push_back(std::move(made));
  }
  return Normalizer([steps](NormalizedText& text) -> Status {
    for (const Normalizer& step : steps) TSR_RETURN_IF_ERROR(step(text));
    return {};
  });
}

Result<Normalizer> make_replace(const JsonMembers& members) {
  TSR_ASSIGN_OR_RETURN(const std::string content, members.text("content"));
  const JsonMembers pattern(members.at("pattern"), members.what() + " pattern");
  if (pattern.at("Regex").is_string()) {
    TSR_ASSIGN_OR_RETURN(const std::string expression, pattern.text("Regex"));
    TSR_ASSIGN_OR_RETURN(const Pattern compiled, Pattern::create(expression));
    return Normalizer([compiled, content](NormalizedText& text) { return replace(text, compiled, content); });
  }
  TSR_ASSIGN_OR_RETURN(const std::string from, pattern.text("String"));
  if (from.empty()) return pattern.wrong("String", "a text that is not empty");
  return Normalizer([from, content](NormalizedText& text) { return replace(text, from, content); });
}

Result<Normalizer> make(const json& description, int depth) {
  if (description.is_null()) return Normalizer();
  if (depth > kMostNested)
    return Status(StatusCode::kInvalidArgument, format("normalizers nest deeper than {}", kMostNested));
  TSR_ASSIGN_OR_RETURN(const std::string type, type_of(description, "normalizer"));
  const JsonMembers members(description, "normalizer " + type);
  const auto form = [](UnicodeForm wanted) {
    return Normalizer([wanted](NormalizedText& text) {
      normalize_unicode(text, wanted);
      return Status();
    });
  };
  if (type == "NFC") return form(UnicodeForm::kNfc);
  if (type == "NFD") return form(UnicodeForm::kNfd);
  if (type == "NFKC") return form(UnicodeForm::kNfkc);
  if (type == "NFKD") return form(UnicodeForm::kNfkd);
  if (type == "Lowercase") return always(lower_case);
  if (type == "Nmt") return always(normalize_nmt);
  if (type == "Sequence") return make_sequence(members, depth);
  if (type == "Replace") return make_replace(members);
  if (type == "StripAccents")
    return always([](NormalizedText& text) {
      keep_characters(text, [](int32_t code) { return code < 0x300 || !is_mark(code); });
    });
  if (type == "ByteLevel")
    return always([](NormalizedText& text) {
      NormalizedTextBuilder to(text);
      for (size_t at = 0; at < text.text.size(); ++at)
        to.put(byte_character(static_cast<uint8_t>(text.text[at])), at);
      text = to.take();
    });
  if (type == "Strip") {
    TSR_ASSIGN_OR_RETURN(const bool left, members.flag("strip_left", true));
    TSR_ASSIGN_OR_RETURN(const bool right, members.flag("strip_right", true));
    return Normalizer([left, right](NormalizedText& text) {
      strip(text, left, right);
      return Status();
    });
  }
  if (type == "BertNormalizer") {
    BertSettings settings{};
    TSR_ASSIGN_OR_RETURN(settings.clean_text, members.flag("clean_text", true));
    TSR_ASSIGN_OR_RETURN(settings.handle_chinese_chars, members.flag("handle_chinese_chars", true));
    TSR_ASSIGN_OR_RETURN(settings.lowercase, members.flag("lowercase", true));
    TSR_ASSIGN_OR_RETURN(settings.strip_accents, members.flag("strip_accents", settings.lowercase));
    return Normalizer([settings](NormalizedText& text) {
      normalize_bert(text, settings);
      return Status();
    });
  }
  if (type == "Prepend") {
    TSR_ASSIGN_OR_RETURN(const std::string prefix, members.text("prepend"));
    return Normalizer([prefix](NormalizedText& text) -> Status {
      if (text.text.empty()) return Status();
      NormalizedTextBuilder to(text);
      to.put(prefix, 0);
      to.copy(0, text.text.size());
      TSR_RETURN_IF_ERROR(to.check_size());
      text = to.take();
      return Status();
    });
  }
  if (type == "Precompiled") {
    if (members.at("precompiled_charsmap").is_null()) return Normalizer();
    TSR_ASSIGN_OR_RETURN(const std::string charsmap, members.text("precompiled_charsmap"));
    return make_precompiled_normalizer(charsmap);
  }
  return unknown_type("normalizer", type, kKnown);
}

}  // namespace

Status NormalizedTextBuilder::check_size() const {
  if (to_.text.size() <= from_.most_bytes) return {};
  return Status(StatusCode::kInvalidArgument,
                format("the tokenizer's normalizer makes a text longer than {} bytes, far longer than it was",
                       from_.most_bytes));
}

Result<Normalizer> make_normalizer(const json& description) { return make(description, 0); }

}  // namespace tessera
