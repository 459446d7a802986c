// Answer: what a model said in its turn, apart: its reasoning, its content, the tools that it calls.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer/form.h"
#include "text/json.h"

namespace tessera {

struct ToolCall {
  std::string id;  // empty where the form has none
  std::string name;
  Json arguments;  // an object
};

struct Answer {
  std::string reasoning, content;
  std::vector<ToolCall> calls;
  bool is_complete = true;  // false: it ends within its reasoning or within a call
};

struct AnswerContext {
  std::string opening;  // AnswerForm::opening_of the prompt
  // [{"type": "function", "function": {"name", "parameters"}}], or null. The schemas in it say which values are texts
  // where a form writes them bare: 4 or "4".
  Json tools;
};

// The whole of an answer. `text`: with the tokens of AnswerForm::markers written out, and no others that are control
// tokens. What is no well-formed call is content, as it is written; of white space between the parts nothing is kept.
Answer parse_answer(const AnswerForm& form, std::string_view text, const AnswerContext& context = {});

// {"role": "assistant", "content", and where there are any "reasoning_content" and "tool_calls": [{"id", "type":
// "function", "function": {"name", "arguments": an object}}]}. A call without an id, or with that of an earlier one, gets
// one that follows from `seed` and its place: nine letters and digits, as Mistral's templates want.
Json message_json(const Answer& answer, uint64_t seed = 0);

}  // namespace tessera
