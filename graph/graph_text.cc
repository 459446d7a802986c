#include "graph/graph_text.h"

#include "graph/base/quote.h"
#include "graph/base/text.h"

namespace tessera {

namespace {
bool starts_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '%' || (c & 0x80) != 0;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool in_word(char c) { return starts_word(c) || is_digit(c) || c == '.'; }
}  // namespace

void TextReader::advance() {
  if (token_.kind == Kind::kLine && token_.text == "\n") ++line_;
  while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t' || rest_[0] == '\r')) rest_.remove_prefix(1);
  if (!rest_.empty() && rest_[0] == '#') rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
  token_ = {};
  if (rest_.empty()) return;

  const char c = rest_[0];
  size_t length = 1;
  if (c == '\n' || c == ';') {
    token_.kind = Kind::kLine;
  } else if (c == '"') {
    token_.kind = Kind::kString;
    for (; length < rest_.size() && rest_[length] != '"'; ++length) {
      if (rest_[length] == '\\' && length + 1 < rest_.size()) ++length;
      if (rest_[length] == '\n') ++line_;
      token_.text += rest_[length];
    }
    // An unclosed string becomes a punctuation token outside every rule, so the error names its place.
    if (length >= rest_.size()) token_ = {Kind::kPunctuation, "unclosed \""};
    rest_.remove_prefix(std::min(length + 1, rest_.size()));
    return;
  } else if (is_digit(c) || ((c == '-' || c == '+') && rest_.size() > 1 &&
                             (is_digit(rest_[1]) || rest_[1] == 'i' || rest_[1] == 'n'))) {
    token_.kind = Kind::kNumber;
    while (length < rest_.size() &&
           (in_word(rest_[length]) ||
            ((rest_[length] == '-' || rest_[length] == '+') && rest_[length - 1] == 'e')))
      ++length;
  } else if (starts_word(c)) {
    token_.kind = Kind::kWord;
    while (length < rest_.size() && in_word(rest_[length])) ++length;
  } else {
    token_.kind = Kind::kPunctuation;
    if (rest_.starts_with("<=") || rest_.starts_with("<-")) length = 2;
  }
  token_.text = rest_.substr(0, length);
  rest_.remove_prefix(length);
}

TextReader::Token TextReader::take() {
  Token taken = token_;
  advance();
  return taken;
}

bool TextReader::accept(std::string_view word) {
  if (!at(word)) return false;
  advance();
  return true;
}

Status TextReader::expect(std::string_view word) {
  if (accept(word)) return {};
  return wrong(format("'{}'", word));
}

Result<std::string> TextReader::name() {
  if (token_.kind != Kind::kWord && token_.kind != Kind::kString) return wrong("a name");
  return take().text;
}

Result<int64_t> TextReader::integer() {
  const auto value = token_.kind == Kind::kNumber ? parse_i64(token_.text) : std::nullopt;
  if (!value) return wrong("an integer");
  advance();
  return *value;
}

Result<double> TextReader::real() {
  const auto value =
      token_.kind == Kind::kNumber || token_.kind == Kind::kWord ? parse_f64(token_.text) : std::nullopt;
  if (!value) return wrong("a number");
  advance();
  return *value;
}

void TextReader::skip_lines() {
  while (token_.kind == Kind::kLine) advance();
}

Status TextReader::end_of_line() {
  if (token_.kind == Kind::kLine) {
    advance();
    return {};
  }
  if (token_.kind == Kind::kEnd || at("}")) return {};
  return wrong("the end of the line");
}

Status TextReader::wrong(std::string_view wanted) const {
  const std::string found = token_.kind == Kind::kEnd    ? "the end of the text"
                            : token_.kind == Kind::kLine ? "the end of the line"
                                                         : "'" + quote(token_.text) + "'";
  return error(format("found {}, wanted {}", found, wanted));
}

Status TextReader::error(std::string_view message) const {
  return Status(StatusCode::kInvalidArgument, format("line {}: {}", line_, message));
}

}  // namespace tessera
