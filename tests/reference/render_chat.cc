// render_chat: chat templates as a command, which chat_templates.py compares with others. A line of standard input is
// a JSON object {"template", "special", "messages", "tools", "documents", "variables", "add_generation_prompt",
// "continue_final_message", "now", "spans"}, a line of standard output {"text", "data", "assistant"} with ranges of
// bytes, or {"error"}.
#include <iostream>
#include <string>

#include "text/chat_template.h"

using namespace tessera;

namespace {

Json json_of(const std::vector<TextRange>& ranges) {
  Json list = Json::array();
  for (const TextRange& range : ranges) list.push_back({range.begin, range.end});
  return list;
}

// The last template, parsed once for many requests.
struct LastTemplate {
  std::string text;
  Json special;
  std::shared_ptr<const ChatTemplate> made;
};

Result<Json> answer(const std::string& line, LastTemplate& last) {
  TSR_ASSIGN_OR_RETURN(const Json asked, parse_json(line, "a request"));
  const std::string text = asked.at("template").get<std::string>();
  if (!last.made || last.text != text || last.special != asked.at("special")) {
    std::map<std::string, std::string> special;
    for (const auto& [name, value] : asked.at("special").items()) special[name] = value.get<std::string>();
    last.made = nullptr;
    TSR_ASSIGN_OR_RETURN(last.made, ChatTemplate::create(text, special));
    last.text = text;
    last.special = asked.at("special");
  }
  const auto& chat = last.made;
  ChatRequest request;
  request.messages = asked.at("messages");
  request.tools = asked.value("tools", Json());
  request.documents = asked.value("documents", Json());
  request.variables = asked.value("variables", Json::object());
  request.add_generation_prompt = asked.value("add_generation_prompt", false);
  request.continue_final_message = asked.value("continue_final_message", false);
  request.now_s = asked.value("now", int64_t{0});
  TSR_ASSIGN_OR_RETURN(const RenderedChat rendered, asked.value("spans", false)
                                                        ? chat->render_with_spans(request)
                                                        : chat->render(request));
  return Json{
      {"text", rendered.text}, {"data", json_of(rendered.data)}, {"assistant", json_of(rendered.assistant)}};
}

}  // namespace

int main() {
  LastTemplate last;
  for (std::string line; std::getline(std::cin, line);) {
    const Result<Json> answered = answer(line, last);
    std::cout << dump(answered.ok() ? answered.value() : Json{{"error", answered.status().to_string()}})
              << std::endl;
  }
}
