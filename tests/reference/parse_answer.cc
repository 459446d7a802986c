// parse_answer: answers as a command, which chat_answers.py asks. A line of standard input is a JSON object {"template",
// "special", "text", "prompt", "tools"}, a line of standard output {"message", "is_complete", "opening", "form"}, or
// {"error"}. Each answer is also parsed byte by byte, and in two halves at every place of short ones, which must give
// the same.
#include <iostream>
#include <map>
#include <string>

#include "graph/base/text.h"
#include "tests/parsed_answer.h"
#include "text/answer/stream.h"
#include "text/chat_template.h"

using namespace tessera;

namespace {

Json json_of(const AnswerForm& form) {
  Json calls = Json::array();
  for (const CallForm& each : form.calls) {
    Json steps = Json::array();
    for (const CallStep& step : each.steps) steps.push_back({static_cast<int>(step.kind), step.mark});
    calls.push_back({{"section", {each.section_open, each.section_close}},
                     {"steps", steps},
                     {"keys", {each.name_key, each.arguments_key, each.id_key}},
                     {"keyed_by_name", each.is_keyed_by_name},
                     {"only_at_start", each.only_at_start},
                     {"parameter",
                      {each.parameter.open, each.parameter.middle, each.parameter.text_kind,
                       each.parameter.kind_end, each.parameter.close}},
                     {"quote", each.quote}});
  }
  const auto spans = [](const std::vector<AnswerSpan>& all) {
    Json list = Json::array();
    for (const AnswerSpan& span : all) list.push_back({span.open, span.close});
    return list;
  };
  return {{"reasoning", spans(form.reasoning)},
          {"content", spans(form.content)},
          {"between", form.between},
          {"calls", calls},
          {"ends", form.ends},
          {"lead", form.lead},
          {"tail", form.tail},
          {"default_opening", form.default_opening}};
}

Json json_of(const Answer& answer) {
  return {{"message", message_json(answer)}, {"is_complete", answer.is_complete}};
}

// Parsing in pieces; each partial result must be a prefix of the answer.
Result<Answer> parse_in_pieces(const AnswerForm& form, const AnswerContext& context, std::string_view text,
                               size_t first, size_t size) {
  AnswerStream stream(form, context);
  std::string reasoning, content;
  for (size_t at = 0; at < text.size();) {
    const std::string_view piece = text.substr(at, at == 0 ? first : size);
    const AnswerDelta delta = stream.add(piece);
    reasoning += delta.reasoning;
    content += delta.content;
    at += piece.size();
  }
  Answer answer = stream.finish();
  if (!answer.reasoning.starts_with(reasoning) || !answer.content.starts_with(content))
    return Status(StatusCode::kInternal, "what was given on the way was taken back");
  return answer;
}

Result<Json> respond(const std::string& line, std::map<std::string, AnswerForm>& forms) {
  TSR_ASSIGN_OR_RETURN(const Json asked, parse_json(line, "a request"));
  const std::string source = asked.at("template").get<std::string>();
  const auto [place, is_new] = forms.try_emplace(source + dump(asked.at("special")));
  if (is_new) {
    std::map<std::string, std::string> special;
    for (const auto& [name, value] : asked.at("special").items()) special[name] = value.get<std::string>();
    TSR_ASSIGN_OR_RETURN(const auto chat, ChatTemplate::create(source, special));
    place->second = AnswerForm::of(*chat);
  }
  const AnswerForm& form = place->second;
  const std::string text = asked.at("text").get<std::string>();
  AnswerContext context;
  context.opening = asked.contains("prompt") ? form.opening_of(asked.at("prompt").get<std::string>()) : "";
  context.tools = asked.value("tools", Json());
  Json whole = json_of(parse_answer(form, text, context));
  const size_t step = text.size() > 2000 ? text.size() / 100 : 1;
  for (size_t first = 1; first <= text.size(); first += step) {
    TSR_ASSIGN_OR_RETURN(const Answer made,
                         parse_in_pieces(form, context, text, first, first == 1 ? 1 : text.size()));
    if (json_of(made) != whole)
      return Status(StatusCode::kInternal, format("in pieces, the first of {} bytes: {}, whole: {}", first,
                                                  dump(json_of(made)), dump(whole)));
  }
  whole["opening"] = context.opening;
  whole["form"] = json_of(form);
  return whole;
}

}  // namespace

int main() {
  std::map<std::string, AnswerForm> forms;
  for (std::string line; std::getline(std::cin, line);) {
    const Result<Json> answered = respond(line, forms);
    std::cout << dump(answered.ok() ? answered.value() : Json{{"error", answered.status().to_string()}})
              << std::endl;
  }
}
