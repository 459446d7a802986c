#include "text/grammar/regex_search.h"

#include <utility>

#include "text/grammar/automaton.h"
#include "text/grammar/regex.h"
#include "text/grammar/state_pool.h"

namespace tessera::grammar {

std::optional<bool> contains_regex(std::string_view text, std::string_view pattern) {
  Expressions expressions;
  const auto body = read_regex(expressions, pattern, RegexMatch::kSearch, TextForm::kPlain, "pattern");
  if (!body.ok()) return std::nullopt;
  const RuleId root = expressions.declare_rule("pattern");
  expressions.define_rule(root, expressions.sequence({expressions.empty(), *body}));
  const auto automaton = build_automaton(expressions, root);
  if (!automaton.ok()) return std::nullopt;
  StatePool states(*automaton);
  StateId state = states.start();
  for (const char c : text) {
    state = states.step(state, static_cast<uint8_t>(c));
    if (state == kDeadState) break;
  }
  if (states.take_exhausted()) return std::nullopt;
  return states.can_end(state);
}

}  // namespace tessera::grammar
