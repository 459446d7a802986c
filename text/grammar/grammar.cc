#include "text/grammar/grammar.h"

#include <string>
#include <utility>

#include "graph/base/text.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/json_text.h"
#include "text/grammar/regex.h"
#include "text/grammar/schema_reader.h"
#include "text/grammar/source_text.h"
#include "text/grammar/state_pool.h"
#include "text/json.h"

namespace tessera::grammar {

Result<Grammar::Shared> Grammar::from_expressions(const Expressions& expressions, RuleId root,
                                                  std::string_view what) {
  auto automaton = build_automaton(expressions, root);
  if (!automaton.ok()) return automaton.status().with_context(what);
  Shared grammar(new Grammar(std::move(automaton).value()));
  StatePool states(grammar->automaton());
  states.start();
  if (states.take_exhausted())
    return Status(StatusCode::kUnsupported, format("{}: it can begin in more than {} ways at once", what,
                                                   StatePool::kMostConfigurations));
  return grammar;
}

Result<Grammar::Shared> Grammar::from_json_schema(std::string_view schema, const JsonStyle& style) {
  TSR_ASSIGN_OR_RETURN(const Json root, parse_schema(schema));
  Expressions expressions;
  JsonText json(expressions, style);
  SchemaReader reader(json, root);
  TSR_ASSIGN_OR_RETURN(const RuleId rule, reader.read());
  auto grammar = from_expressions(expressions, rule, "JSON schema");
  if (!grammar.ok() && grammar.status().code() == StatusCode::kInvalidArgument &&
      !reader.contradiction().empty())
    return Status(StatusCode::kInvalidArgument,
                  format("JSON schema, {}; no value is allowed then", reader.contradiction()));
  return grammar;
}

Result<Grammar::Shared> Grammar::json(const JsonStyle& style) { return from_json_schema("true", style); }

Result<Grammar::Shared> Grammar::from_regex(std::string_view pattern) {
  Expressions expressions;
  TSR_ASSIGN_OR_RETURN(const ExpressionId body, read_regex(expressions, pattern, RegexMatch::kWhole,
                                                           TextForm::kPlain, "regular expression"));
  const RuleId root = expressions.declare_rule("expression");
  expressions.define_rule(root, expressions.sequence({expressions.empty(), body}));
  return from_expressions(expressions, root, "regular expression");
}

Result<Grammar::Shared> Grammar::from_choices(std::span<const std::string> choices) {
  constexpr size_t kMostBytes = size_t{1} << 20;
  if (choices.empty())
    return Status(StatusCode::kInvalidArgument, "choices: found none, wanted at least one text");
  size_t bytes = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].empty())
      return Status(StatusCode::kInvalidArgument, format("choices: text {} is empty", i));
    if (const size_t valid = valid_utf8(choices[i]); valid < choices[i].size())
      return Status(StatusCode::kInvalidArgument,
                    format("choices: byte {} of text {} is not UTF-8", valid, i));
    bytes += choices[i].size();
  }
  if (bytes > kMostBytes)
    return Status(StatusCode::kInvalidArgument,
                  format("choices: they have {} bytes, wanted at most {}", bytes, kMostBytes));
  Expressions expressions;
  const RuleId root = expressions.declare_rule("choices");
  expressions.define_rule(root, expressions.literals({choices.begin(), choices.end()}));
  return from_expressions(expressions, root, "choices");
}

Result<Grammar::Shared> Grammar::from_gbnf(std::string_view grammar) {
  Expressions expressions;
  TSR_ASSIGN_OR_RETURN(const RuleId root, read_gbnf(expressions, grammar));
  return from_expressions(expressions, root, "GBNF grammar");
}

}  // namespace tessera::grammar
