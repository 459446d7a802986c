// Answer: a model's turn in parts: reasoning, content, and tool calls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/answer/form.h"
#include "text/json.h"

namespace tessera {

struct ToolCall {
  std::string id;  // empty if the form has no ids
  std::string name;
  Json arguments;  // an object
};

// CutCall: a call in which the answer ends.
struct CutCall {
  std::string id, name;   // empty until complete
  std::string arguments;  // the beginning of an object's JSON; empty before it
};

struct Answer {
  std::string reasoning, content;
  std::vector<ToolCall> calls;
  std::optional<CutCall> cut_call;  // after `calls`
  bool is_complete = true;          // false: it ends within reasoning, a call or a mark
};

struct AnswerContext {
  std::string opening;  // AnswerForm::opening_of the prompt
  // [{"type": "function", "function": {"name", "parameters"}}], or null.
  // The schemas decide whether a bare 4 is a number or the text "4".
  Json tools;
};

// {"role": "assistant", "content", optional "reasoning_content" and "tool_calls": [{"id", "type":
// "function", "function": {"name", "arguments": an object}}], "cut_call": {"id", "name", "arguments": a text}}.
// A call without a unique id gets one derived from `seed` and its position: nine letters and digits, as Mistral's
// templates require.
Json message_json(const Answer& answer, uint64_t seed = 0);

}  // namespace tessera
