// Names and tokens that the text forms of graphs and plans share.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

std::string_view phase_name(Phase phase);        // "backward_input"
std::string quoted_name(std::string_view name);  // bare where it parses back, else "in quotes"
std::string type_text(const TensorType& type, std::span<const Symbol> symbols);  // "f32[B, T, 64]"
std::string type_text(const TensorType& type, const Graph& graph);

// A reader of tokens: words, quoted strings, numbers, punctuation, line ends. Comments run from '#' to the
// line's end. Every error names the line.
class TextReader {
 public:
  enum class Kind : uint8_t { kEnd, kLine, kWord, kString, kNumber, kPunctuation };
  struct Token {
    Kind kind = Kind::kEnd;
    std::string text;  // of a string: unescaped
  };

  explicit TextReader(std::string_view text) : rest_(text) { advance(); }

  const Token& peek() const { return token_; }
  Token take();
  bool at(std::string_view word) const { return token_.kind != Kind::kString && token_.text == word; }
  bool accept(std::string_view word);  // takes a bare word or punctuation
  Status expect(std::string_view word);
  Result<std::string> name();  // a bare word or a quoted string
  Result<int64_t> integer();
  Result<double> real();  // integers too
  void skip_lines();      // any number of line ends
  Status end_of_line();   // line end or ';', or before a '}' or the end of text
  Status wrong(std::string_view wanted) const;
  Status error(std::string_view message) const;  // with the line of the last token taken

 private:
  void advance();

  std::string_view rest_;
  Token token_;
  int line_ = 1;  // of token_
};

}  // namespace tessera
