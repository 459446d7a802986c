// CallGrammar: the answers that consist of calls of tools, as a grammar in the template's own syntax: each call has the name
// of a tool and arguments of its schema, and AnswerStream reads it back as that call. Reasoning before the calls is free.
#pragma once

#include <string>
#include <vector>

#include "graph/base/result.h"
#include "text/answer/form.h"
#include "text/grammar/grammar.h"
#include "text/json.h"

namespace tessera {

struct CallGrammar {
  // As of AnswerContext. Without parameters a tool has no arguments.
  Json tools;
  // The only tool, called once; empty: any of them, and several calls where the template writes several.
  std::string name;
  // AnswerForm::opening_of the prompt; and whether the answer may open reasoning, where the prompt has not.
  std::string opening;
  bool may_reason = true;
  // Tokens that stand for these texts wherever marks have them (TokenBytes::control_bytes), and those that end texts: a mark
  // that begins with one of these, behind the last call, is left to it.
  std::vector<std::string> control_tokens, end_tokens;
};

// kInvalidArgument and kUnsupported with the tool, for its schema and its name; kUnsupported if the template has no calls.
Result<grammar::Grammar::Shared> make_call_grammar(const AnswerForm& form, const CallGrammar& wanted);

// The names of tools, in their order. kInvalidArgument for a tool without a name.
Result<std::vector<std::string>> tool_names(const Json& tools);

}  // namespace tessera
