// AnswerForm: the marks of reasoning, content and tool calls in a model's turn.
// Derived from the chat template by rendering probe messages; parts that a template
// does not show (many drop past reasoning) are recognised by known words in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

class ChatTemplate;

struct AnswerSpan {
  std::string open, close;
};

// ParameterForm: arguments as marked parameters: <parameter=KEY>VALUE</parameter>.
struct ParameterForm {
  std::string open, middle,
      close;  // before KEY, between KEY and VALUE, after VALUE; "\1" in `close` repeats KEY
  // Whether the mark states VALUE's type, as in `string="true">`: `middle`, a word, `kind_end`.
  bool has_kind = false;
  std::string kind_end, text_kind;     // the word for texts
  std::string value_lead, value_tail;  // white space around VALUE, not part of it
};

struct CallStep {
  enum class Kind : uint8_t {
    kMark,        // `mark`
    kName,        // a word
    kId,          // a word
    kSkip,        // up to the next mark: a call number, or filler
    kObjects,     // one JSON object with name and arguments, or an array of them
    kArguments,   // a JSON object
    kParameters,  // as the form's `parameter`
    kPython,      // name(key=value, ...), or a list of such
    kQuoted,      // an object with bare keys and special quotation marks
  };
  Kind kind;
  std::string mark;
  // As the template writes it: white space at the mark's ends, and what kSkip stands for, with the name for "\1".
  bool has_lead = false, has_tail = false;
  std::vector<std::string> fillers = {};
};

// CallForm: one syntax of calls.
struct CallForm {
  std::string section_open, section_close;  // around all calls; may be empty
  std::vector<CallStep> steps;              // of one call
  bool only_at_start = false;  // only at the start of an answer or part: the mark could be content elsewhere
  std::string name_key = "name", arguments_key = "arguments", id_key = "id";
  bool is_keyed_by_name = false;  // {NAME: ARGUMENTS}
  // As the template writes kObjects and kPython: whether all calls are one list, and an object's keys: of "function" where
  // name and arguments are within it. Without keys those of name and arguments.
  bool is_list = false, has_function = false;
  std::vector<std::string> keys = {};
  ParameterForm parameter;
  std::string quote;  // of kQuoted
};

// Immutable; any thread.
struct AnswerForm {
  std::vector<AnswerSpan> reasoning;  // at the start of an answer or part
  bool reasons_anywhere = false;      // and within content: the template takes it out of there (Gemma 4)
  std::vector<AnswerSpan> content;    // marks around content; most templates have none
  std::vector<std::string> between;   // separators of parts, such as another message's header; dropped
  std::vector<CallForm> calls;        // the template's own first
  std::vector<std::string> ends;      // end marks of a turn; dropped at an answer's end
  std::string lead, tail;             // the template's white space around content
  std::string default_opening;        // opening of the default generation prompt

  // Never fails: without recognised marks answers are entirely content.
  static AnswerForm of(const ChatTemplate& chat);

  // The mark at the prompt's end, which the answer continues, such as "<think>"; empty: none.
  std::string opening_of(std::string_view prompt) const;
  // All marks. Control tokens within them must be decoded as text before parsing.
  std::vector<std::string> markers() const;
};

}  // namespace tessera
