// Grammar: a set of allowed texts, from a JSON schema, a regular expression, choices or
// GBNF. All become an automaton over bytes that accepts only valid UTF-8. Immutable and
// shared; any thread, with a small stack. docs/guides/constraints.md describes each source.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "graph/base/result.h"
#include "text/grammar/automaton.h"

namespace tessera::grammar {

// JsonStyle: how values are written: as JSON, or in a language like it.
struct JsonStyle {
  bool allow_spaces = true;  // allows a space, or a line end and indentation, around values
  // The mark around texts, which have no escapes then, and its bytes, which may be a control token's; empty: JSON's
  // strings.
  std::string quote = {}, quote_bytes = {};
  bool has_bare_names = false;    // names of members that are words have no quotation marks
  bool has_python_words = false;  // True, False and None too
  std::string forbidden = {};     // what no string contains
};

class Grammar {
 public:
  using Shared = std::shared_ptr<const Grammar>;

  // kInvalidArgument for an invalid or unsatisfiable schema, kUnsupported for
  // unsupported keywords; with the place as a JSON pointer ("#/properties/a").
  static Result<Shared> from_json_schema(std::string_view schema, const JsonStyle& style = {});
  static Result<Shared> json(const JsonStyle& style = {});  // any value
  // The whole text must match. kInvalidArgument and kUnsupported name the byte.
  static Result<Shared> from_regex(std::string_view pattern);
  // The text is one of them. kInvalidArgument for no choices, empty ones and invalid UTF-8.
  static Result<Shared> from_choices(std::span<const std::string> choices);
  // llama.cpp's grammars, from rule "root". kInvalidArgument and kUnsupported name line and column.
  static Result<Shared> from_gbnf(std::string_view grammar);
  // The texts of a rule. kInvalidArgument if there are none. `what`: for messages.
  static Result<Shared> from_expressions(const Expressions& expressions, RuleId root, std::string_view what);

  const Automaton& automaton() const { return automaton_; }

 private:
  explicit Grammar(Automaton automaton) : automaton_(std::move(automaton)) {}
  const Automaton automaton_;
};

}  // namespace tessera::grammar
