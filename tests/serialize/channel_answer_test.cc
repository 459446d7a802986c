// Answers with channels, as Gemma 4 writes them: reasoning in a channel of its own, wherever it stands, and calls in objects with
// bare keys and quotation marks of their own.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/ok.h"
#include "tests/parsed_answer.h"
#include "text/answer/stream.h"
#include "text/chat_template.h"

namespace tessera {
namespace {

using test::ok;

// The marks of Gemma 4's template: past reasoning is shown next to calls alone, and is taken out of content; without thinking the
// prompt holds an empty channel; the results of calls follow in the same turn.
constexpr const char* kTemplate = R"({%- macro value(it) -%}
{%- if it is string -%}{{- '<|"|>' + it + '<|"|>' -}}
{%- elif it is boolean -%}{{- 'true' if it else 'false' -}}
{%- elif it is mapping -%}{{- '{' -}}
{%- for k, v in it | dictsort -%}{{- k -}}:{{- value(v) -}}{{- ',' if not loop.last -}}{%- endfor -%}{{- '}' -}}
{%- elif it is sequence -%}{{- '[' -}}{%- for v in it -%}{{- value(v) -}}{{- ',' if not loop.last -}}{%- endfor -%}{{- ']' -}}
{%- elif it is none -%}null
{%- else -%}{{- it -}}{%- endif -%}
{%- endmacro -%}
{%- macro without_channels(text) -%}
{%- set ns = namespace(kept='') -%}
{%- for part in text.split('<channel|>') -%}{%- set ns.kept = ns.kept + part.split('<|channel>')[0] -%}{%- endfor -%}
{{- ns.kept | trim -}}
{%- endmacro -%}
{%- for m in messages -%}
{{- '<|turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' -}}
{%- if m.reasoning_content and m.tool_calls -%}{{- '<|channel>thought\n' + m.reasoning_content + '\n<channel|>' -}}{%- endif -%}
{%- for c in m.tool_calls -%}
{{- '<|tool_call>call:' + c.function.name + value(c.function.arguments) + '<tool_call|>' -}}{%- endfor -%}
{{- without_channels(m.content) if m.role == 'assistant' else m.content -}}
{{- '<|tool_response>' if m.tool_calls else '<turn|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|turn>model\n' -}}
{%- if not enable_thinking | default(false) -%}{{- '<|channel>thought\n<channel|>' -}}{%- endif -%}{%- endif -%})";

AnswerForm form_of(const char* source) { return AnswerForm::of(*ok(ChatTemplate::create(source, {}))); }

// {"reasoning", "content", "calls"}, the same whole and in pieces.
Json parsed(const AnswerForm& form, std::string_view text, const std::string& opening = {}) {
  const auto json = [](const Answer& answer) {
    Json calls = Json::array();
    for (const ToolCall& call : answer.calls) calls.push_back({call.name, call.arguments});
    return Json({{"reasoning", answer.reasoning}, {"content", answer.content}, {"calls", calls}});
  };
  const AnswerContext context{opening, Json()};
  const Json whole = json(parse_answer(form, text, context));
  for (size_t size = 1; size < text.size(); size += 1 + text.size() / 16) {
    AnswerStream stream(form, context);
    std::string reasoning, content;
    for (size_t at = 0; at < text.size(); at += size) {
      const AnswerDelta delta = stream.add(text.substr(at, size));
      reasoning += delta.reasoning, content += delta.content;
    }
    const Answer answer = stream.finish();
    CHECK(json(answer) == whole);
    CHECK(answer.content.starts_with(content));
    CHECK(answer.reasoning.starts_with(reasoning));
  }
  return whole;
}

Json message(std::string_view reasoning, std::string_view content, Json calls = Json::array()) {
  return {{"reasoning", reasoning}, {"content", content}, {"calls", std::move(calls)}};
}

}  // namespace

TEST_CASE("the form of channels: reasoning anywhere, calls between marks, and both ends of a turn") {
  const AnswerForm form = form_of(kTemplate);
  REQUIRE(form.reasoning.size() == 1);
  CHECK(form.reasoning[0].open == "<|channel>thought");
  CHECK(form.reasoning[0].close == "<channel|>");
  CHECK(form.reasons_anywhere);
  CHECK(form.content.empty());
  REQUIRE(form.calls.size() == 1);
  CHECK(form.calls[0].steps.back().mark == "<tool_call|>");
  CHECK(form.calls[0].quote == "<|\"|>");
  for (const char* const end : {"<turn|>", "<|tool_response>"})
    CHECK(std::ranges::find(form.ends, end) != form.ends.end());
  // The prompt closes the channel, or leaves it to the model, or begins it.
  CHECK(form.default_opening.empty());
  CHECK(form.opening_of("<|turn>model\n").empty());
  CHECK(form.opening_of("<|turn>model\n<|channel>thought\n") == "<|channel>thought");
}

TEST_CASE("reasoning is the channel's, wherever it stands, and content is all else") {
  const AnswerForm form = form_of(kTemplate);
  const std::string thought = "<|channel>thought\n", end = "<channel|>";
  const Json both = message("I'm\nthinking", "Hello, world!\nWhat's up?"),
             bare = message("", "Hello, world!\nWhat's up?");
  const std::string hello = "Hello, world!\nWhat's up?";
  CHECK(parsed(form, hello) == bare);
  CHECK(parsed(form, hello + "<turn|>") == bare);
  CHECK(parsed(form, thought + "I'm\nthinking" + end + hello) == both);
  CHECK(parsed(form, thought + "I'm\nthinking\n" + end + hello + "<turn|>") == both);
  CHECK(parsed(form, "I'm\nthinking" + end + hello, "<|channel>thought") == both);
  // An empty channel, with and without its line.
  CHECK(parsed(form, "<|channel>thought" + end + hello) == bare);
  CHECK(parsed(form, thought + end + hello) == bare);
  // Closed once more, or begun again, behind the content.
  for (const std::string& tail : {end, thought + end, thought + end + end})
    CHECK(parsed(form, thought + end + hello + tail) == bare);
  CHECK(parsed(form, "Hello, " + thought + "I'm\nthinking\n" + end + "world!\nWhat's up?") == both);
  CHECK(parsed(form, "Hello," + thought + "I'm\nthinking\n" + end + " world!\nWhat's up?") == both);
  CHECK(parsed(form, "Hello, world!\n" + thought + "I'm" + end + thought + "thinking" + end +
                         "\nWhat's up?") == both);
  CHECK(parsed(form, hello + "\n" + thought + "I'm\nthinking" + end + "\n") == both);
  // Cut within the channel, it is no content.
  const Answer cut = parse_answer(form, thought + "I'm\nthinking");
  CHECK(cut.reasoning == "I'm\nthinking");
  CHECK(cut.content.empty());
  CHECK(!cut.is_complete);
  // Other marks are content.
  CHECK(parsed(form, "<think>a</think> <|channel b <channel") ==
        message("", "<think>a</think> <|channel b <channel"));
}

TEST_CASE("calls between channels and content have their arguments") {
  const AnswerForm form = form_of(kTemplate);
  const auto call = [](const std::string& arguments) {
    return "<|tool_call>call:f{" + arguments + "}<tool_call|>";
  };
  const auto arguments = [&](const std::string& text) { return parsed(form, call(text)); };
  const auto has = [](const char* json) {
    return message("", "", Json::array({Json::array({"f", Json::parse(json)})}));
  };
  CHECK(arguments("") == has("{}"));
  CHECK(arguments(R"(city:<|"|>San Francisco<|"|>)") == has(R"({"city": "San Francisco"})"));
  CHECK(arguments(R"(a:42,b:-7,c:3.14,d:1.5e10)") == has(R"({"a": 42, "b": -7, "c": 3.14, "d": 1.5e10})"));
  CHECK(arguments("on:true,off:false,none:null") == has(R"({"on": true, "off": false, "none": null})"));
  CHECK(arguments(R"(todos:[<|"|>buy milk<|"|>,<|"|>walk {dog}, "x"<|"|>],no:[])") ==
        has(R"({"todos": ["buy milk", "walk {dog}, \"x\""], "no": []})"));
  CHECK(arguments(R"(config:{count:3,theme:<|"|>dark<|"|>},e:{})") ==
        has(R"({"config": {"count": 3, "theme": "dark"}, "e": {}})"));
  CHECK(arguments(R"(config:{<|"|>count<|"|>:3})") ==
        has(R"({"config": {"count": 3}})"));  // keys between the marks, too
  const Json calls = Json::array({Json::array({"f", {{"a", 1}}}), Json::array({"f", {{"b", 2}}})});
  const std::string two = call("a:1") + call("b:2"), thought = "<|channel>thought\nhm\n<channel|>";
  CHECK(parsed(form, two) == message("", "", calls));
  CHECK(parsed(form, two + "<|tool_response>") == message("", "", calls));
  CHECK(parsed(form, thought + two) == message("hm", "", calls));
  CHECK(parsed(form, thought + "I look." + two) == message("hm", "I look.", calls));
  CHECK(parsed(form, "I look." + thought + two) == message("hm", "I look.", calls));
  CHECK(parsed(form, call("a:1") + thought + call("b:2") + "<|tool_response>") == message("hm", "", calls));
  CHECK(parsed(form, "<|channel>thought\nhm <|tool_call>call:f{a:1}<tool_call|> not yet<channel|>Yes.") ==
        message("hm <|tool_call>call:f{a:1}<tool_call|> not yet", "Yes."));
}

TEST_CASE("messages come back from what the template writes of them") {
  const auto chat = ok(ChatTemplate::create(kTemplate, {}));
  const AnswerForm form = AnswerForm::of(*chat);
  const Json nested = Json::parse(
      R"({"code": "if a < b:\n  f(\"x\", '{')\n", "where": {"e": {}, "k": [1, "b", true, null, {"z": -2.5}]}})");
  for (const char* const reasoning : {"", "Let me see.\n\nIt is <b>easy</b>."})
    for (const char* const content : {"", "Two lines\n\n  [x] {y} <z>."})
      for (const int count : {0, 1, 2}) {
        if (count == 0 && (*content == 0 || *reasoning != 0))
          continue;  // the template leaves out reasoning without calls
        Json wanted = {{"role", "assistant"}, {"content", content}};
        if (*reasoning != 0) wanted["reasoning_content"] = reasoning;
        for (int i = 0; i < count; ++i)
          wanted["tool_calls"].push_back(
              {{"type", "function"}, {"function", {{"name", i == 0 ? "f" : "g"}, {"arguments", nested}}}});
        ChatRequest request;
        request.messages = Json::array({{{"role", "user"}, {"content", "Hi"}}, wanted});
        const std::string text = ok(chat->render(request)).text, turn = "<|turn>model\n";
        Json found = message_json(parse_answer(form, text.substr(text.rfind(turn) + turn.size())));
        if (found.contains("tool_calls"))
          for (Json& call : found["tool_calls"]) call.erase("id");
        CHECK(found == wanted);
      }
}

TEST_CASE("reasoning stands at the beginning where the template takes nothing out of content, or more") {
  const std::string turns =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<think>{{ "
      "m.reasoning_content }}"
      "</think>{% endif %}";
  for (const char* const content :
       {"{{ m.content }}", "{{ m.content.split('</think>')[-1] }}", "{{ m.content.split('<think>')[0] }}"}) {
    const AnswerForm form = form_of((turns + content + "<|im_end|>\n{% endfor %}").c_str());
    CHECK(form.reasoning.size() == 1);
    CHECK(!form.reasons_anywhere);
    CHECK(parsed(form, "A <think> in </think> content.") == message("", "A <think> in </think> content."));
  }
}

}  // namespace tessera
