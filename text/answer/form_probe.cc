#include "text/answer/form_probe.h"

namespace tessera::answer {
namespace {

Json probe_tools() {
  Json tools = Json::array();
  for (const std::string_view name : kProbeNames) {
    Json properties = Json::object();
    for (const std::string_view key : kProbeKeys)
      properties[std::string(key)] = {{"type", key == kProbeKeys[2] ? "integer" : "string"},
                                      {"description", "a value"}};
    tools.push_back(
        {{"type", "function"},
         {"function",
          {{"name", name},
           {"description", "a tool"},
           {"parameters",
            {{"type", "object"}, {"properties", properties}, {"required", Json::array({"qzka"})}}}}}});
  }
  return tools;
}

Json user_message() { return {{"role", "user"}, {"content", kUserWord}}; }

Json probe_call(int index, bool as_text) {
  Json arguments = Json::object();
  for (size_t i = 0; i < std::size(kProbeKeys); ++i)
    arguments[std::string(kProbeKeys[i])] = i == 2 ? Json(90517) : Json(kProbeValues[i]);
  if (as_text) arguments = dump(arguments);
  return {{"id", kProbeIds[index]},
          {"type", "function"},
          {"function", {{"name", kProbeNames[index]}, {"arguments", std::move(arguments)}}}};
}

}  // namespace

FormProbe::FormProbe(const ChatTemplate& chat) : chat_(chat) {
  Json messages = Json::array();
  messages.push_back(user_message());
  // Some templates refuse tools, others require them under a name of their own.
  for (const bool has_tools : {true, false})
    for (const Json& variables : {Json::object(), Json{{"functions", "[]"}, {"datetime", ""}}}) {
      tools_ = has_tools ? probe_tools() : Json();
      variables_ = variables;
      if (const auto prompt = run(messages, Json::object(), true)) {
        prompt_ = *prompt;
        return;
      }
    }
}

std::optional<std::string> FormProbe::run(const Json& messages, const Json& variables,
                                          bool add_generation_prompt) const {
  ChatRequest request;
  request.messages = messages;
  request.tools = tools_;
  request.variables = variables_;
  request.variables.update(variables);
  request.add_generation_prompt = add_generation_prompt;
  request.now_s = 0;
  const Result<RenderedChat> rendered = chat_.render(request);
  if (!rendered.ok()) return std::nullopt;
  const size_t user = rendered->text.rfind(kUserWord);
  if (user == std::string::npos) return std::nullopt;
  return rendered->text.substr(user + kUserWord.size());
}

// Templates differ in the syntax of arguments and the parts allowed together:
// returns the first rendering that shows all parts, else the first that succeeds.
std::optional<std::string> FormProbe::render(const ProbeMessage& wanted) const {
  std::optional<std::string> best;
  for (const bool as_text : {false, true})
    for (const bool thinks : {false, true}) {
      if (as_text && wanted.calls == 0) continue;
      if (thinks && !wanted.has_reasoning) continue;
      Json message = {{"role", "assistant"},
                      {"content", wanted.has_content ? kContentWord : std::string_view()}};
      if (wanted.has_reasoning) message["reasoning_content"] = kReasoningWord;
      for (int i = 0; i < wanted.calls; ++i) message["tool_calls"].push_back(probe_call(i, as_text));
      const Json variables = thinks ? Json{{"enable_thinking", true}, {"thinking", true}} : Json::object();
      Json messages = Json::array();
      messages.push_back(user_message());
      messages.push_back(std::move(message));
      std::optional<std::string> text = run(messages, variables, false);
      if (!text) continue;
      const auto shows = [&text](std::string_view word) { return text->find(word) != std::string::npos; };
      // A quoted text of arguments differs from what a model writes.
      const bool shows_all =
          (!wanted.has_content || shows(kContentWord)) && (!wanted.has_reasoning || shows(kReasoningWord)) &&
          (wanted.calls == 0 || (shows(kProbeValues[2]) && shows(kProbeNames[0]) && !shows("\\\"qzka"))) &&
          (wanted.calls < 2 || shows(kProbeNames[1]));
      if (shows_all) return text;
      if (!best) best = std::move(text);
    }
  return best;
}

std::optional<std::string> FormProbe::render_content(const std::string& content) const {
  Json messages = Json::array();
  messages.push_back(user_message());
  messages.push_back({{"role", "assistant"}, {"content", content}});
  return run(messages, Json::object(), false);
}

}  // namespace tessera::answer
