// AnswerForm: how a model writes its turn: the marks of its reasoning, of its content, and of the calls of tools. It is
// read off the chat template, by rendering messages of known words and looking what stands between them; templates that
// do not show all of it (many leave reasoning out of the past) are completed by what their own words say.
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

// Arguments as parameters, each with marks of its own: <parameter=KEY>VALUE</parameter>.
struct ParameterForm {
  std::string open, middle,
      close;  // before KEY, between KEY and VALUE, behind VALUE; "\1" in `close` is KEY again
  // Where the mark says whether VALUE is a text, as in `string="true">`: it is `middle`, a word, `kind_end`.
  bool has_kind = false;
  std::string kind_end, text_kind;     // the word of texts
  std::string value_lead, value_tail;  // white space around VALUE that is not of it
};

struct CallStep {
  enum class Kind : uint8_t {
    kMark,        // `mark`
    kName,        // a word
    kId,          // a word
    kSkip,        // up to the next mark: a number, or what says nothing
    kObjects,     // one JSON object with name and arguments, or an array of them
    kArguments,   // a JSON object
    kParameters,  // as the form's `parameter`
    kPython,      // name(key=value, ...), or a list of such
    kQuoted,      // an object with bare keys and the form's own quotation marks
  };
  Kind kind;
  std::string mark;
};

// One way to write calls.
struct CallForm {
  std::string section_open, section_close;  // around all of them; may be empty
  std::vector<CallStep> steps;              // of one
  bool only_at_start = false;  // of an answer or of its part: a mark that could be content elsewhere
  std::string name_key = "name", arguments_key = "arguments", id_key = "id";
  bool is_keyed_by_name = false;  // {NAME: ARGUMENTS}
  ParameterForm parameter;
  std::string quote;  // of kQuoted
};

// Immutable; any thread.
struct AnswerForm {
  std::vector<AnswerSpan> reasoning;  // an answer's beginning, or that of a part of it
  std::vector<AnswerSpan> content;    // marks around content; most templates have none
  std::vector<std::string> between;   // between parts, such as a header of a further message; dropped
  std::vector<CallForm> calls;        // the template's own first
  std::vector<std::string> ends;      // of a turn; dropped at the end of an answer
  std::string lead, tail;             // white space around content that is the template's
  std::string default_opening;        // opening_of the template's generation prompt without variables

  // Never fails for want of a form: a template that shows nothing has answers that are content throughout.
  static AnswerForm of(const ChatTemplate& chat);

  // The mark that a prompt ends in and that an answer therefore begins behind, such as "<think>"; empty for none.
  std::string opening_of(std::string_view prompt) const;
  // Every mark. A control token whose text lies in one of them must be decoded as its text for the answer to be parsed.
  std::vector<std::string> markers() const;
};

}  // namespace tessera
