#include "text/answer/literal.h"

#include <cctype>

#include "graph/base/text.h"
#include "text/answer/marker.h"

namespace tessera::answer {
namespace {

void append_utf8(std::string& text, uint32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    text += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// Recursive descent; fails by returning nullopt or false.
class LiteralParser {
 public:
  LiteralParser(std::string_view text, std::string_view quote) : text_(text), quote_(quote) {}

  std::optional<Json> parse_whole() {
    std::optional<Json> value = parse_value(0);
    skip();
    return value && at_ == text_.size() ? std::move(value) : std::nullopt;
  }

  std::optional<std::vector<std::pair<std::string, Json>>> parse_calls() {
    std::vector<std::pair<std::string, Json>> calls;
    const bool in_list = take('[');
    if (!(in_list && take(']'))) do {
        std::string name = parse_word(true);
        Json arguments = Json::object();
        if (name.empty() || !take('(') || !parse_members(')', '=', arguments, 1)) return std::nullopt;
        calls.emplace_back(std::move(name), std::move(arguments));
      } while (in_list && take(','));
    if (in_list && !calls.empty() && !take(']')) return std::nullopt;
    skip();
    return at_ == text_.size() ? std::optional(std::move(calls)) : std::nullopt;
  }

 private:
  void skip() { at_ = skip_space(text_, at_); }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::string parse_word(bool with_dots) {
    skip();
    const size_t begin = at_;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const bool is_word = std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '$' ||
                           (c & 0x80) || (with_dots && c == '.');
      if (!is_word) break;
      ++at_;
    }
    return std::string(text_.substr(begin, at_ - begin));
  }

  // "key<separator>value, ..." up to and with `end`.
  bool parse_members(char end, char separator, Json& object, int depth) {
    if (take(end)) return true;
    do {
      skip();
      std::optional<std::string> key;
      if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'' || at_quote()))
        key = parse_string();
      else
        key = parse_word(false);
      if (!key || key->empty() || !take(separator)) return false;
      std::optional<Json> value = parse_value(depth);
      if (!value) return false;
      object[*key] = std::move(*value);
      if (take(end)) return true;
    } while (take(',') && !take(end));
    return at_ > 0 && text_[at_ - 1] == end;
  }

  bool at_quote() const { return !quote_.empty() && text_.substr(at_).starts_with(quote_); }

  std::optional<std::string> parse_string() {
    std::string value;
    if (at_quote()) {
      const size_t begin = at_ + quote_.size(), end = text_.find(quote_, begin);
      if (end == std::string_view::npos) return std::nullopt;
      at_ = end + quote_.size();
      return std::string(text_.substr(begin, end - begin));
    }
    const char quote = text_[at_++];
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == quote) return value;
      if (c != '\\') {
        value += c;
        continue;
      }
      if (at_ >= text_.size() || !parse_escape(value)) return std::nullopt;
    }
    return std::nullopt;
  }

  bool parse_escape(std::string& value) {
    const char c = text_[at_++];
    switch (c) {
      case 'n': value += '\n'; return true;
      case 't': value += '\t'; return true;
      case 'r': value += '\r'; return true;
      case 'b': value += '\b'; return true;
      case 'f': value += '\f'; return true;
      case '\n': return true;  // line continuation
      case '\\':
      case '\'':
      case '"':
      case '/': value += c; return true;
      case 'x': return parse_code(2, value);
      case 'u': return parse_code(4, value);
      case 'U': return parse_code(8, value);
      default:  // Python keeps unknown escapes
        value += '\\';
        value += c;
        return true;
    }
  }

  std::optional<uint32_t> parse_hex(size_t digits) {
    if (text_.size() - at_ < digits) return std::nullopt;
    uint32_t code = 0;
    for (size_t i = 0; i < digits; ++i) {
      const char c = text_[at_ + i];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return std::nullopt;
      code = code << 4 | static_cast<uint32_t>(digit);
    }
    at_ += digits;
    return code;
  }

  bool parse_code(size_t digits, std::string& value) {
    std::optional<uint32_t> code = parse_hex(digits);
    if (code && *code >= 0xD800 && *code < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
      at_ += 2;
      const std::optional<uint32_t> low = parse_hex(4);
      if (!low || *low < 0xDC00 || *low > 0xDFFF) return false;
      code = 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00);
    }
    if (!code || *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000)) return false;
    append_utf8(value, *code);
    return true;
  }

  std::optional<Json> parse_number() {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isdigit(static_cast<unsigned char>(text_[at_])) || text_[at_] == '-' || text_[at_] == '+' ||
            text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E'))
      ++at_;
    const std::string_view digits = text_.substr(begin, at_ - begin);
    if (const auto whole = parse_i64(digits)) return Json(*whole);
    if (const auto real = parse_f64(digits)) return Json(*real);
    return std::nullopt;
  }

  std::optional<Json> parse_value(int depth) {
    skip();
    if (depth >= kMostJsonDepth || at_ >= text_.size()) return std::nullopt;
    const char c = text_[at_];
    if (at_quote() || c == '"' || c == '\'') {
      std::optional<std::string> value = parse_string();
      return value ? std::optional<Json>(std::move(*value)) : std::nullopt;
    }
    if (c == '{') {
      ++at_;
      Json object = Json::object();
      return parse_members('}', ':', object, depth + 1) ? std::optional(std::move(object)) : std::nullopt;
    }
    if (c == '[' || c == '(') {
      ++at_;
      const char end = c == '[' ? ']' : ')';
      Json list = Json::array();
      if (take(end)) return list;
      do {
        std::optional<Json> value = parse_value(depth + 1);
        if (!value) return std::nullopt;
        list.push_back(std::move(*value));
        if (take(end)) return list;
      } while (take(',') && !take(end));
      return text_[at_ - 1] == end ? std::optional(std::move(list)) : std::nullopt;
    }
    if (std::isdigit(static_cast<unsigned char>(c)) || c == '-' || c == '+' || c == '.')
      return parse_number();
    const std::string word = parse_word(false);
    if (word == "True" || word == "true") return Json(true);
    if (word == "False" || word == "false") return Json(false);
    if (word == "None" || word == "null") return Json();
    return std::nullopt;
  }

  std::string_view text_, quote_;
  size_t at_ = 0;
};

}  // namespace

std::optional<Json> parse_literal(std::string_view text, std::string_view quote) {
  return LiteralParser(text, quote).parse_whole();
}

std::optional<std::vector<std::pair<std::string, Json>>> parse_python_calls(std::string_view text) {
  return LiteralParser(text, {}).parse_calls();
}

}  // namespace tessera::answer
