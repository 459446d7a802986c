#include "text/answer/call_grammar.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/answer/call_writer.h"
#include "text/grammar/mark_language.h"
#include "text/grammar/string_automaton.h"

namespace tessera {
namespace {

using answer::CalledTool;
using answer::CallWriter;
using answer::MarkWriter;
using grammar::ExpressionId;
using grammar::Expressions;
using grammar::RuleId;

// Whether forms differ in their first mark alone, as harmony's recipients do.
bool is_variant(const CallForm& a, const CallForm& b) {
  if (a.section_open != b.section_open || a.steps.size() != b.steps.size()) return false;
  for (size_t i = 0; i < a.steps.size(); ++i)
    if (a.steps[i].kind != b.steps[i].kind || (i > 0 && a.steps[i].mark != b.steps[i].mark)) return false;
  return a.steps[0].kind == CallStep::Kind::kMark;
}

// A call without marks that is no object is not told from content.
bool is_readable(const CallForm& form) {
  const CallStep::Kind first = form.steps[0].kind;
  return !form.section_open.empty() || first == CallStep::Kind::kMark ||
         (first == CallStep::Kind::kObjects && !form.is_list);
}

// AnswerWriter: reasoning, then calls.
class AnswerWriter {
 public:
  AnswerWriter(const AnswerForm& form, const CallGrammar& wanted)
      : form_(form), wanted_(wanted), marks_(wanted) {}

  Result<grammar::Grammar::Shared> write() {
    if (form_.calls.empty() || !is_readable(form_.calls[0]))
      return Status(StatusCode::kUnsupported,
                    "the chat template writes no calls of tools; wanted one that does (option 'template')");
    TSR_ASSIGN_OR_RETURN(tools_, answer::read_called_tools(wanted_));
    const ExpressionId gap = answer::write_gap(out_);
    TSR_ASSIGN_OR_RETURN(const ExpressionId start, write_start(gap));
    TSR_ASSIGN_OR_RETURN(const ExpressionId calls, write_calls());
    const RuleId root = out_.declare_rule("answer");
    out_.define_rule(root, out_.sequence({gap, start, gap, calls}));
    TSR_RETURN_IF_ERROR(out_.status());
    auto made = grammar::Grammar::from_expressions(out_, root, "calls of tools");
    if (!made.ok() && made.status().code() == StatusCode::kInvalidArgument && !contradiction_.empty())
      return Status(StatusCode::kInvalidArgument, contradiction_ + "; no call is allowed then");
    return made;
  }

 private:
  Result<ExpressionId> write_calls() {
    std::vector<ExpressionId> ways;
    for (const CallForm& form : form_.calls) {
      if (&form != &form_.calls[0] && !is_variant(form_.calls[0], form)) continue;
      const bool is_begun = form.section_open.empty() && form.steps[0].kind == CallStep::Kind::kMark &&
                            !wanted_.opening.empty() && wanted_.opening == form.steps[0].mark;
      CallWriter writer(out_, marks_, form, tools_, is_begun);
      TSR_ASSIGN_OR_RETURN(const std::optional<ExpressionId> calls, writer.write(wanted_.name.empty()));
      if (contradiction_.empty()) contradiction_ = writer.contradiction();
      if (calls) ways.push_back(*calls);
    }
    if (ways.empty())
      return Status(StatusCode::kUnsupported,
                    "the chat template's calls have a token before their arguments that ends texts");
    return out_.choice(std::move(ways));
  }

  // Text before the calls: reasoning that the prompt has opened, or that the answer may open.
  Result<ExpressionId> write_start(ExpressionId gap) {
    for (const AnswerSpan& span : form_.reasoning) {
      if (span.open.empty() || span.close.empty()) continue;
      const bool is_opened = span.open == wanted_.opening;
      if (!is_opened && !wanted_.may_reason) continue;
      const MarkWriter::Written open = marks_.write(span.open), close = marks_.write(span.close);
      if (close.is_cut && is_opened)
        return Status(StatusCode::kUnsupported,
                      format("reasoning ends with '{}', which ends texts", quote(span.close)));
      if (close.is_cut || open.is_cut) continue;
      TSR_ASSIGN_OR_RETURN(const ExpressionId text, write_text_before(span.close));
      const ExpressionId rest = out_.sequence({text, out_.literal(close.bytes), write_between(gap)});
      return is_opened ? rest : out_.optional(out_.sequence({out_.literal(open.bytes), rest}));
    }
    return out_.empty();
  }

  // The header of another message, which may follow reasoning.
  ExpressionId write_between(ExpressionId gap) {
    std::vector<ExpressionId> marks;
    for (const std::string& mark : form_.between)
      if (const MarkWriter::Written written = marks_.write(mark); !written.is_cut)
        marks.push_back(out_.sequence({gap, out_.literal(written.bytes)}));
    return marks.empty() ? out_.empty() : out_.optional(out_.choice(std::move(marks)));
  }

  Result<ExpressionId> write_text_before(std::string_view mark) {
    grammar::Languages languages;
    const auto automaton = grammar::StringAutomaton::of(languages, grammar::texts_before(languages, mark));
    if (!automaton.ok()) return automaton.status().with_context(format("text before '{}'", quote(mark)));
    return write_automaton(out_, *automaton, grammar::TextForm::kPlain, 0, grammar::kUnbounded);
  }

  const AnswerForm& form_;
  const CallGrammar& wanted_;
  const MarkWriter marks_;
  Expressions out_;
  std::vector<CalledTool> tools_;
  std::string contradiction_;
};

}  // namespace

Result<std::vector<std::string>> tool_names(const Json& tools) {
  const auto refused = [](std::string what) { return Status(StatusCode::kInvalidArgument, std::move(what)); };
  if (!tools.is_array()) return refused(format("tools are {}, wanted an array", quote_json(tools)));
  std::vector<std::string> names;
  for (const Json& tool : tools) {
    const auto function = tool.is_object() ? tool.find("function") : tool.end();
    const Json& own = tool.is_object() && function != tool.end() ? *function : tool;
    const auto name = own.is_object() ? own.find("name") : own.end();
    if (!own.is_object() || name == own.end() || !name->is_string() || name->get_ref<const std::string&>().empty())
      return refused(format("a tool is {}, wanted an object with a name", quote_json(tool)));
    names.push_back(name->get<std::string>());
  }
  return names;
}

Result<grammar::Grammar::Shared> make_call_grammar(const AnswerForm& form, const CallGrammar& wanted) {
  return AnswerWriter(form, wanted).write();
}

}  // namespace tessera
