#include "serialize/answer/answer.h"

#include "serialize/answer/stream.h"

namespace tessera {

Answer parse_answer(const AnswerForm& form, std::string_view text, const AnswerContext& context) {
  AnswerStream stream(form, context);
  (void)stream.add(text);
  return stream.finish();
}

Json message_json(const Answer& answer) {
  Json message = {{"role", "assistant"}, {"content", answer.content}};
  if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
  if (answer.calls.empty()) return message;
  Json calls = Json::array();
  for (const ToolCall& call : answer.calls) {
    std::string id = std::to_string(calls.size());
    id = "call" + std::string(id.size() < 5 ? 5 - id.size() : 0, '0') + id;
    calls.push_back({{"id", call.id.empty() ? id : call.id},
                     {"type", "function"},
                     {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  message["tool_calls"] = std::move(calls);
  return message;
}

}  // namespace tessera
