#include <algorithm>
#include <charconv>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/jinja/text.h"
#include "text/jinja/token.h"
#include "text/jinja/unicode.h"

namespace tessera::jinja {
namespace {

bool is_digit_of(char c, int base) {
  const int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : 99;
  return digit < base;
}

// Longest first.
constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

// "\r
// " and "\r" become "
// ", and a final one is dropped.
std::string normalized(std::string_view source) {
  std::string text;
  const std::string valid = valid_utf8(source);
  for (size_t i = 0; i < valid.size(); ++i) {
    if (valid[i] == '\r' && i + 1 < valid.size() && valid[i + 1] == '\n') continue;
    text += valid[i] == '\r' ? '\n' : valid[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) TSR_RETURN_IF_ERROR(read_data());
    add(TokenKind::kEnd, {}, source_.size());
    return std::move(tokens_);
  }

 private:
  std::string_view rest(size_t at) const { return std::string_view(source_).substr(at); }
  bool starts(size_t at, std::string_view word) const { return rest(at).starts_with(word); }

  Position position(size_t at) {
    if (at < counted_) counted_ = line_begin_ = 0, line_ = 1;
    for (; counted_ < at; ++counted_)
      if (source_[counted_] == '\n') ++line_, line_begin_ = counted_ + 1;
    return Position{line_, static_cast<int32_t>(at - line_begin_) + 1};
  }

  void add(TokenKind kind, std::string text, size_t at) {
    tokens_.push_back(Token{kind, std::move(text), position(at), 0, 0});
  }

  size_t skip_space(size_t at) const {
    for (size_t size = 0; at < source_.size(); at += size)
      if (!is_space(code_point_at(source_, at, size))) break;
    return at;
  }
  size_t without_space_before(size_t begin, size_t end) const {
    while (end > begin) {
      size_t last = end - 1, size = 0;
      while ((static_cast<unsigned char>(source_[last]) & 0xc0) == 0x80) --last;
      if (!is_space(code_point_at(source_, last, size))) break;
      end = last;
    }
    return end;
  }

  // The place after the word at `at` if it is exactly `word`; else 0.
  size_t behind_word(size_t at, std::string_view word) const {
    at = skip_space(at);
    return starts(at, word) ? at + word.size() : 0;
  }
  // The place after a tag's end at `at`; 0: none. `trims`: also skips a newline.
  size_t behind_end(size_t at, std::string_view end, bool trims, bool allows_plus) const {
    if (allows_plus && starts(at, "+") && starts(at + 1, end)) return at + 1 + end.size();
    if (starts(at, "-") && starts(at + 1, end)) return skip_space(at + 1 + end.size());
    if (!starts(at, end)) return 0;
    at += end.size();
    return trims && starts(at, "\n") ? at + 1 : at;
  }

  // Adds the text before a tag, without the white space that the tag strips.
  void add_data(size_t begin, size_t end, char sign, bool is_variable) {
    if (sign == '-') {
      end = without_space_before(begin, end);
    } else if (sign != '+' && !is_variable) {
      const size_t newline = rest(begin).substr(0, end - begin).rfind('\n');
      const bool has_newline = newline != std::string::npos;
      const size_t line = has_newline ? begin + newline + 1 : begin;
      if ((has_newline || line_starts_) && skip_space(line) >= end) end = line;
    }
    if (end > begin) add(TokenKind::kData, source_.substr(begin, end - begin), begin);
  }

  // `end`: of the tag just read.
  void advance(size_t end) {
    line_starts_ = end > 0 && source_[end - 1] == '\n';
    at_ = end;
  }

  Status read_data() {
    size_t tag = at_;
    for (; tag < source_.size(); ++tag)
      if (source_[tag] == '{' && (starts(tag, "{%") || starts(tag, "{{") || starts(tag, "{#"))) break;
    if (tag >= source_.size()) {
      add(TokenKind::kData, source_.substr(at_), at_);
      at_ = source_.size();
      return {};
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    const size_t inside = tag + 2 + (sign == '-' || sign == '+' ? 1 : 0);
    if (kind == '%')
      if (const size_t word = behind_word(inside, "raw"); word > 0)
        if (const size_t end = behind_end(skip_space(word), "%}", false, false); end > 0) {
          add_data(at_, tag, sign, false);
          return read_raw(tag, end);
        }
    add_data(at_, tag, sign, kind == '{');
    if (kind == '#') return read_comment(tag, inside);
    add(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, source_.substr(tag, inside - tag),
        tag);
    return read_tag(inside, kind == '{');
  }

  Status read_comment(size_t tag, size_t inside) {
    for (size_t at = inside; at < source_.size(); ++at)
      if (const size_t end = behind_end(at, "#}", true, true); end > 0) {
        advance(end);
        return {};
      }
    return syntax_error(position(tag), "a comment begins that does not end; wanted '#}'");
  }

  Status read_raw(size_t tag, size_t begin) {
    line_starts_ = source_[begin - 1] == '\n';
    for (size_t at = begin; at < source_.size(); ++at) {
      if (!starts(at, "{%")) continue;
      const char sign = at + 2 < source_.size() ? source_[at + 2] : ' ';
      const size_t word = behind_word(at + 2 + (sign == '-' || sign == '+' ? 1 : 0), "endraw");
      const size_t end = word > 0 ? behind_end(skip_space(word), "%}", true, true) : 0;
      if (end == 0) continue;
      add_data(begin, at, sign, false);
      advance(end);
      return {};
    }
    return syntax_error(position(tag), "a raw block begins that does not end; wanted '{% endraw %}'");
  }

  Status read_tag(size_t at, bool is_variable) {
    std::string open;  // open brackets
    const size_t begin = at;
    while (at < source_.size()) {
      if (open.empty())
        if (const size_t end = behind_end(at, is_variable ? "}}" : "%}", !is_variable, !is_variable);
            end > 0) {
          add(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, {}, at);
          advance(end);
          return {};
        }
      if (const size_t behind = skip_space(at); behind > at) {
        at = behind;
        continue;
      }
      TSR_ASSIGN_OR_RETURN(at, read_word(at, open));
    }
    return syntax_error(position(begin), is_variable ? "a tag begins that does not end; wanted '}}'"
                                                     : "a tag begins that does not end; wanted '%}'");
  }

  Result<size_t> read_word(size_t at, std::string& open) {
    const char c = source_[at];
    size_t size = 0;
    const uint32_t code = code_point_at(source_, at, size);
    if (c >= '0' && c <= '9') return read_number(at);
    if (is_name_begin(code)) {
      size_t end = at + size;
      while (end < source_.size() && is_name_rest(code_point_at(source_, end, size))) end += size;
      add(TokenKind::kName, source_.substr(at, end - at), at);
      return end;
    }
    if (c == '"' || c == '\'') return read_string(at);
    for (const std::string_view name : kOperators) {
      if (!starts(at, name)) continue;
      if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty()) return syntax_error(position(at), format("unexpected '{}'", c));
        if (open.back() != c)
          return syntax_error(position(at), format("unexpected '{}', wanted '{}'", c, open.back()));
        open.pop_back();
      }
      add(TokenKind::kOperator, std::string(name), at);
      return at + name.size();
    }
    return syntax_error(position(at), format("unexpected character '{}'", rest(at).substr(0, size)));
  }

  Result<size_t> read_number(size_t at) {
    const char second = at + 1 < source_.size() ? source_[at + 1] : ' ';
    const int base = source_[at] != '0'               ? 10
                     : second == 'x' || second == 'X' ? 16
                     : second == 'o' || second == 'O' ? 8
                     : second == 'b' || second == 'B' ? 2
                                                      : 10;
    std::string digits;
    size_t end = base == 10 ? at : at + 2;
    const auto read_digits = [&](int of) {
      for (; end < source_.size(); ++end) {
        if (is_digit_of(source_[end], of))
          digits += source_[end];
        else if (source_[end] != '_' || end + 1 >= source_.size() || !is_digit_of(source_[end + 1], of))
          break;
      }
    };
    read_digits(base);
    bool real = false;
    const auto digit_at = [&](size_t i) { return i < source_.size() && is_digit_of(source_[i], 10); };
    if (base == 10 && starts(end, ".") && digit_at(end + 1)) {
      real = true;
      digits += source_[end++];
      read_digits(10);
    }
    if (base == 10 && (starts(end, "e") || starts(end, "E"))) {
      const size_t sign = starts(end + 1, "+") || starts(end + 1, "-") ? 1 : 0;
      if (digit_at(end + 1 + sign)) {
        real = true;
        digits += source_.substr(end, 1 + sign);
        end += 1 + sign;
        read_digits(10);
      }
    }
    add(real ? TokenKind::kReal : TokenKind::kInteger, digits, at);
    Token& token = tokens_.back();
    const char* const stop = digits.data() + digits.size();
    const auto outcome = real ? std::from_chars(digits.data(), stop, token.real)
                              : std::from_chars(digits.data(), stop, token.integer, base);
    if (outcome.ec != std::errc() || outcome.ptr != stop)
      return syntax_error(token.at, format("the number {} is beyond 64 bits", quote(digits, 40)));
    return end;
  }

  Result<size_t> read_string(size_t at) {
    const char mark = source_[at];
    std::string value;
    for (size_t i = at + 1; i < source_.size(); ++i) {
      if (source_[i] == mark) {
        add(TokenKind::kString, std::move(value), at);
        return i + 1;
      }
      if (source_[i] != '\\' || i + 1 >= source_.size()) {
        value += source_[i];
        continue;
      }
      TSR_ASSIGN_OR_RETURN(i, read_escape(i + 1, value));
    }
    return syntax_error(position(at), "a string begins that does not end");
  }

  // Reads a Python escape; `at` is after the backslash. Returns the last byte read.
  Result<size_t> read_escape(size_t at, std::string& value) {
    constexpr std::string_view kNames = "abfnrtv\\'\"\n", kMeanings = "\a\b\f\n\r\t\v\\'\"";
    const char c = source_[at];
    if (const size_t found = kNames.find(c); found != std::string_view::npos) {
      if (c != '\n') value += kMeanings[found];
      return at;
    }
    const size_t wanted = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (wanted > 0) {
      const std::string_view digits = rest(at + 1).substr(0, wanted);
      uint32_t code = 0;
      const auto outcome = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
      const bool is_whole = digits.size() == wanted && outcome.ptr == digits.data() + wanted;
      if (!is_whole || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return syntax_error(position(at), format("'\\{}' wants {} digits of a character", c, wanted));
      append_utf8(value, code);
      return at + wanted;
    }
    if (is_digit_of(c, 8)) {
      uint32_t code = 0;
      size_t end = at;
      while (end < at + 3 && end < source_.size() && is_digit_of(source_[end], 8))
        code = code * 8 + static_cast<uint32_t>(source_[end++] - '0');
      append_utf8(value, code);
      return end - 1;
    }
    if (c == 'N') return syntax_error(position(at), "names of characters, '\\N', are not supported");
    (value += '\\') += c;
    return at;
  }

  const std::string source_;
  size_t at_ = 0, counted_ = 0, line_begin_ = 0;
  int32_t line_ = 1;
  bool line_starts_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Status syntax_error(Position at, std::string_view message) {
  return Status(StatusCode::kInvalidArgument, format("line {}, column {}: {}", at.line, at.column, message));
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd: return "the end of the template";
    case TokenKind::kData: return "text";
    case TokenKind::kVariableBegin: return "'{{'";
    case TokenKind::kVariableEnd: return "'}}'";
    case TokenKind::kBlockBegin: return "'{%'";
    case TokenKind::kBlockEnd: return "'%}'";
    case TokenKind::kString: return "the string " + quote(token.text, 40);
    default: return "'" + token.text.substr(0, 40) + "'";
  }
}

Result<std::vector<Token>> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace tessera::jinja
