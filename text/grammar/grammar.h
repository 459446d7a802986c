// Grammar: which texts are allowed, from a JSON schema, a regular expression, a list of choices or GBNF. All become one
// automaton over bytes, so that every text is valid UTF-8 as a whole. Immutable and shared; any thread, with however
// little stack. docs/guides/constraints.md says what each source may hold.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "graph/base/result.h"
#include "text/grammar/automaton.h"

namespace tessera::grammar {

struct JsonStyle {
  bool allow_spaces = true;  // a space, or a line's end and its indentation, around values; else none at all
};

class Grammar {
 public:
  using Shared = std::shared_ptr<const Grammar>;

  // kInvalidArgument for what is no schema or allows no text, kUnsupported for keywords that cannot be obeyed; both
  // with the place as a JSON pointer ("#/properties/a").
  static Result<Shared> from_json_schema(std::string_view schema, const JsonStyle& style = {});
  static Result<Shared> json(const JsonStyle& style = {});  // any value
  // The whole text matches. kInvalidArgument and kUnsupported with the byte.
  static Result<Shared> from_regex(std::string_view pattern);
  // The text is one of them. kInvalidArgument for none, empty ones and what is not UTF-8.
  static Result<Shared> from_choices(std::span<const std::string> choices);
  // llama.cpp's grammars; the rule "root" matches the text. kInvalidArgument and kUnsupported with line and column.
  static Result<Shared> from_gbnf(std::string_view grammar);

  const Automaton& automaton() const { return automaton_; }

 private:
  explicit Grammar(Automaton automaton) : automaton_(std::move(automaton)) {}
  static Result<Shared> make(const Expressions& expressions, RuleId root, std::string_view what);
  const Automaton automaton_;
};

}  // namespace tessera::grammar
