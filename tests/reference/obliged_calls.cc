// obliged_calls: random answers of grammars of calls as a command, which obliged_calls.py asks. A line of standard input is a
// JSON object {"template", "special", "tools", "name": "" for any, "prompt", "count", "seed", "control": whether tags of
// marks are control tokens}, a line of standard output {"answers": [{"text", "message"}]}, or {"error"}.
#include <iostream>
#include <map>
#include <string>

#include "tests/parsed_answer.h"
#include "tests/random_calls.h"
#include "text/answer/call_grammar.h"
#include "text/answer/marker.h"
#include "text/chat_template.h"

using namespace tessera;

namespace {

Result<Json> respond(const std::string& line) {
  TSR_ASSIGN_OR_RETURN(const Json asked, parse_json(line, "a request"));
  std::map<std::string, std::string> special;
  for (const auto& [name, value] : asked.at("special").items()) special[name] = value.get<std::string>();
  TSR_ASSIGN_OR_RETURN(const auto chat, ChatTemplate::create(asked.at("template").get<std::string>(), special));
  const AnswerForm form = AnswerForm::of(*chat);
  const std::string prompt = asked.at("prompt");
  CallGrammar wanted;
  wanted.tools = asked.at("tools");
  wanted.name = asked.at("name");
  wanted.opening = form.opening_of(prompt);
  for (const AnswerSpan& span : form.reasoning)
    if (!span.close.empty() && answer::without_trailing_space(prompt).ends_with(span.close)) wanted.may_reason = false;
  if (asked.at("control").get<bool>()) wanted.control_tokens = test::tags_of(form);
  TSR_ASSIGN_OR_RETURN(auto grammar, make_call_grammar(form, wanted));
  test::RandomCalls random(std::move(grammar), form, wanted.control_tokens, wanted.tools, asked.at("seed").get<uint32_t>());
  Json answers = Json::array();
  for (int i = asked.at("count"); i > 0; --i) {
    TSR_ASSIGN_OR_RETURN(const std::string text, random.write());
    const Answer read = parse_answer(form, text, {wanted.opening, wanted.tools});
    answers.push_back({{"text", text}, {"message", message_json(read)}});
  }
  return Json{{"answers", std::move(answers)}};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const Result<Json> answered = respond(line);
    std::cout << dump(answered.ok() ? answered.value() : Json{{"error", answered.status().to_string()}}) << std::endl;
  }
}
