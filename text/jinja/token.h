// Token of a template: text between tags, the marks of tags, and the words inside them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"

namespace tessera::jinja {

// Both count from 1; columns are bytes.
struct Position {
  int32_t line = 1, column = 1;
};

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kReal,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // strings: unescaped
  Position at;
  int64_t integer = 0;
  double real = 0;

  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool is_operator(std::string_view name) const { return kind == TokenKind::kOperator && text == name; }
};

// kInvalidArgument, "line 3, column 7: ...", for an error of syntax.
Status syntax_error(Position at, std::string_view message);
// "end of the template", "'endfor'".
std::string describe(const Token& token);

// Whole templates, with Jinja2's trim_blocks and lstrip_blocks. The last token is kEnd.
Result<std::vector<Token>> tokenize(std::string_view source);

}  // namespace tessera::jinja
