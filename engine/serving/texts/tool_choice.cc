#include "engine/serving/texts/tool_choice.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/answer/marker.h"

namespace tessera {

ToolChoice ToolChoice::of(std::string_view option) {
  if (option.empty() || option == "auto") return {};
  if (option == "none") return {Kind::kNone, {}};
  if (option == "required") return {Kind::kRequired, {}};
  return {Kind::kNamed, std::string(option)};
}

std::string_view ToolChoice::text() const {
  switch (kind) {
    case Kind::kAuto: return "auto";
    case Kind::kNone: return "none";
    case Kind::kRequired: return "required";
    case Kind::kNamed: break;
  }
  return name;
}

Status ToolChoice::check(const Json& tools) const {
  if (!obliges()) return {};
  const auto refused = [&](std::string why) {
    return Status(StatusCode::kInvalidArgument, format("request: option 'tool_choice' is '{}'{}", quote(text()), why));
  };
  if (tools.is_null() || tools.empty())
    return refused(", and there are no tools: wanted them as option 'tools', or tool_choice auto or none");
  TSR_ASSIGN_OR_RETURN(const std::vector<std::string> names, tool_names(tools));
  if (kind == Kind::kNamed && std::ranges::find(names, name) == names.end())
    return refused(format(", wanted auto, none, required or the name of a tool: {}", quote(join(names, ", "), 400)));
  return {};
}

CallGrammar obliged_calls(const ToolChoice& choice, Json tools, const Chat& chat, const Tokenizer& tokenizer,
                          std::string_view prompt, bool continues) {
  const AnswerForm& form = chat.answer_form();
  CallGrammar calls;
  calls.tools = std::move(tools);
  calls.name = choice.name;
  calls.opening = form.opening_of(prompt);
  // With reasoning turned off, the template writes an empty closed span.
  const std::string_view shown = answer::without_trailing_space(prompt);
  calls.may_reason = !continues && std::ranges::none_of(form.reasoning, [&](const AnswerSpan& span) {
    return !span.close.empty() && shown.ends_with(span.close);
  });
  const TokenizerData& data = tokenizer.data();
  for (size_t id = 0; id < data.types.size(); ++id)
    if (data.types[id] == TokenType::kControl) calls.control_tokens.push_back(data.tokens[id]);
  for (const int32_t id : data.end_ids)
    if (id >= 0 && static_cast<size_t>(id) < data.tokens.size())
      calls.end_tokens.push_back(data.tokens[static_cast<size_t>(id)]);
  return calls;
}

}  // namespace tessera
