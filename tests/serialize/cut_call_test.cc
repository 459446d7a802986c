// Answers that end within a call, in every syntax of calls.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/call_families.h"
#include "tests/ok.h"
#include "tests/parsed_answer.h"
#include "text/answer/marker.h"
#include "text/answer/stream.h"
#include "text/chat_template.h"

namespace tessera {
namespace {

using test::chat_ml;
using test::families;
using test::Family;
using test::ok;

AnswerForm form_of(const std::string& source) { return AnswerForm::of(*ok(ChatTemplate::create(source, {}))); }
AnswerForm of_words(const std::string& words) { return form_of(chat_ml("{# " + words + " #}")); }

// Two calls: look_up {"city": "Paris\n\"x\"", "days": 4} and now {"where": {"k": [1, "b"]}}.
struct Written {
  std::string name;
  AnswerForm form;
  std::string text;
  std::string opening = {};
};

constexpr const char* kFirst = R"({"city": "Paris\n\"x\"", "days": 4})";
constexpr const char* kSecond = R"({"where": {"k": [1, "b"]}})";

std::string rendered(const Family& family, std::string& opening, const AnswerForm& form) {
  const auto chat = ok(ChatTemplate::create(family.source, {}));
  const auto call = [](const char* name, const char* arguments) {
    return Json{{"id", "abcdefgh1"},
                {"type", "function"},
                {"function", {{"name", name}, {"arguments", Json::parse(arguments)}}}};
  };
  ChatRequest request;
  request.messages = Json::array({{{"role", "user"}, {"content", "Hi"}}});
  request.add_generation_prompt = true;
  const std::string prompt = ok(chat->render(request)).text;
  request.add_generation_prompt = false;
  request.messages.push_back({{"role", "assistant"},
                              {"content", "I look."},
                              {"tool_calls", Json::array({call("look_up", kFirst), call("now", kSecond)})}});
  const std::string whole = ok(chat->render(request)).text;
  const bool goes_on = whole.starts_with(prompt);
  if (goes_on) opening = form.opening_of(prompt);
  const size_t begin = goes_on ? prompt.size() : whole.find("I look.");
  return whole.substr(begin, whole.rfind("<|im_end|>") - begin);
}

std::vector<Written> all_written() {
  std::vector<Written> all;
  for (const Family& family : families()) {
    AnswerForm form = form_of(family.source);
    std::string opening;
    std::string text = rendered(family, opening, form);
    all.push_back({family.name, std::move(form), std::move(text), std::move(opening)});
  }
  const std::string first = kFirst, second = kSecond;
  const std::string objects = R"({"name": "look_up", "arguments": )" + first + R"(}, {"name": "now", "arguments": )" + second + "}";
  const std::string python = R"([look_up(city="Paris\n\"x\"", days=4), now(where={"k": [1, "b"]})])";
  const auto harmony = [&](const char* name, const std::string& arguments) {
    return "<|start|>assistant<|channel|>commentary to=functions." + std::string(name) + " <|constrain|>json<|message|>" +
           arguments + "<|call|>";
  };
  all.push_back({"harmony", of_words("<|start|> <|channel|>analysis<|message|>"),
                 "<|channel|>commentary<|message|>I look.<|end|>" + harmony("look_up", first) + harmony("now", second)});
  const auto muse = [](const char* name, const std::string& parameters) {
    return "<|start|>assistant to=" + std::string(name) + "<|message|><atem:function_calls>\n<atem:invoke name=\"" + name +
           "\">\n" + parameters + "</atem:invoke>\n</atem:function_calls><|eom|>";
  };
  all.push_back({"Muse", of_words("<atem:invoke to=self"),
                 "to=user<|message|>I look.<|eom|>" +
                     muse("look_up", "<atem:parameter name=\"city\">Paris\n\"x\"</atem:parameter>\n"
                                     "<atem:parameter name=\"days\">4</atem:parameter>\n") +
                     muse("now", R"(<atem:parameter name="where">{"k": [1, "b"]}</atem:parameter>)" "\n")});
  all.push_back({"Kimi K3", of_words("<|open|> <|end_of_msg|>"),
                 "<|open|>response<|sep|>I look.<|close|>response<|sep|><|open|>tools<|sep|>"
                 "<|open|>call tool=\"look_up\" index=\"1\"<|sep|>"
                 "<|open|>argument key=\"city\" type=\"string\"<|sep|>Paris\n\"x\"<|close|>argument<|sep|>"
                 "<|open|>argument key=\"days\" type=\"number\"<|sep|>4<|close|>argument<|sep|><|close|>call<|sep|>"
                 "<|open|>call tool=\"now\" index=\"2\"<|sep|><|open|>argument key=\"where\" type=\"object\"<|sep|>"
                 "{\"k\": [1, \"b\"]}<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"});
  all.push_back({"Solar", of_words("<|tool_call:args|> <|content|>"),
                 "<|content|>I look.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1<|tool_call:name|>look_up"
                 "<|tool_call:args|>" + first + "<|tool_call:end|><|tool_call:begin|>a2<|tool_call:name|>now"
                 "<|tool_call:args|>" + second + "<|tool_call:end|><|calls|>"});
  all.push_back({"Functionary", of_words(">>>all <|start_header_id|>"),
                 ">>>all\nI look.>>>look_up\n" + first + ">>>now\n" + second});
  all.push_back({"Kimi K2", of_words("<|tool_calls_section_begin|>"),
                 "I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.look_up:0<|tool_call_argument_begin|>" + first +
                     "<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>" + second +
                     "<|tool_call_end|><|tool_calls_section_end|>"});
  all.push_back({"DeepSeek", of_words("<｜tool▁calls▁begin｜>"),
                 "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look_up<｜tool▁sep｜>" + first +
                     "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>" + second +
                     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"});
  all.push_back({"LFM2", of_words("<|tool_list_start|>"), "I look.<|tool_call_start|>" + python + "<|tool_call_end|>"});
  all.push_back({"Llama's Python", of_words("<|python_tag|>"), "I look.<|python_tag|>" + python});
  all.push_back({"Mistral", of_words("[TOOL_CALLS]"), "I look.[TOOL_CALLS][" + objects + "]"});
  all.push_back({"Granite", of_words("available_tools"), "I look.<|tool_call|>[" + objects + "]"});
  all.push_back({"Phi-4-mini", of_words("<|/tool_call|>"), "I look.<|tool_call|>[" + objects + "]<|/tool_call|>"});
  all.push_back({"Nemotron", of_words("<TOOLCALL>"), "I look.<TOOLCALL>[" + objects + "]</TOOLCALL>"});
  const std::string function = R"({"type": "function", "id": "a1", "function": {"name": "look_up", "arguments": )" + first + "}}";
  all.push_back({"objects of functions", of_words("<tool_call>"),
                 "I look.<tool_call>" + function + "</tool_call><tool_call>{\"arguments\": " + second +
                     ", \"name\": \"now\"}</tool_call>"});
  all.push_back({"arguments as texts", of_words("<tool_call>"),
                 "I look.<tool_call>{\"name\": \"look_up\", \"arguments\": " + dump(Json(first)) +
                     "}</tool_call><tool_call>{\"name\": \"now\", \"arguments\": " + dump(Json(second)) + "}</tool_call>"});
  return all;
}

std::string without_space(std::string text) {
  std::erase_if(text, answer::is_space);
  return text;
}

Answer in_bytes(const AnswerForm& form, const AnswerContext& context, std::string_view text) {
  AnswerStream stream(form, context);
  for (size_t i = 0; i < text.size(); ++i) {
    (void)stream.add(text.substr(i, 1));
    CHECK(!stream.answer().cut_call);
  }
  return stream.finish();
}

bool is_same(const ToolCall& a, const ToolCall& b) {
  return a.name == b.name && dump(a.arguments) == dump(b.arguments);
}

CutCall cut_of(const AnswerForm& form, const std::string& text) {
  const Answer answer = parse_answer(form, text);
  CAPTURE(text);
  CHECK(answer.content.empty());
  CHECK(!answer.is_complete);
  REQUIRE(answer.cut_call);
  return *answer.cut_call;
}

std::string shown(const AnswerForm& form, const std::string& text) {
  const CutCall call = cut_of(form, text);
  return call.name + " " + call.arguments;
}

}  // namespace

TEST_CASE("an answer that is cut at any byte of its calls has those that are complete, and the beginning of the next") {
  for (const Written& it : all_written()) {
    CAPTURE(it.name);
    const AnswerContext context{it.opening, Json()};
    const Answer whole = parse_answer(it.form, it.text, context);
    CAPTURE(it.text);
    CHECK(whole.content == "I look.");
    CHECK(whole.is_complete);
    CHECK(!whole.cut_call);
    REQUIRE(whole.calls.size() == 2);
    CHECK(is_same(whole.calls[0], {"", "look_up", Json::parse(kFirst)}));
    CHECK(is_same(whole.calls[1], {"", "now", Json::parse(kSecond)}));
    size_t named = 0, most_arguments[2] = {};
    CutCall last;
    size_t last_calls = 0;
    for (size_t size = it.text.find("I look.") + 7; size < it.text.size(); ++size) {
      const std::string text = it.text.substr(0, size);
      CAPTURE(text);
      const Answer cut = parse_answer(it.form, text, context);
      CHECK(message_json(cut) == message_json(in_bytes(it.form, context, text)));
      // Fewer bytes of a mark than plain text may have by chance are content.
      CHECK(cut.content.starts_with("I look."));
      const std::string rest = without_space(cut.content.substr(std::min<size_t>(cut.content.size(), 7)));
      CHECK(rest.size() < 4);
      CHECK(it.text.find(rest) != std::string::npos);
      REQUIRE(cut.calls.size() <= 2);
      for (size_t i = 0; i < cut.calls.size(); ++i) CHECK(is_same(cut.calls[i], whole.calls[i]));
      if (!cut.cut_call) continue;
      REQUIRE(cut.calls.size() < 2);
      CHECK(!cut.is_complete);
      CHECK(rest.empty());
      const ToolCall& meant = whole.calls[cut.calls.size()];
      const CutCall& call = *cut.cut_call;
      CHECK((call.name.empty() || call.name == meant.name));
      CHECK(without_space(dump(meant.arguments)).starts_with(without_space(call.arguments)));
      // Both only grow.
      if (last_calls == cut.calls.size()) {
        CHECK(call.name.starts_with(last.name));
        CHECK(without_space(call.arguments).starts_with(without_space(last.arguments)));
      }
      last = call, last_calls = cut.calls.size();
      named += call.name.empty() ? 0 : 1;
      most_arguments[cut.calls.size()] = std::max(most_arguments[cut.calls.size()], call.arguments.size());
    }
    CHECK(named > 8);
    // The first call's city was complete at some place.
    CHECK(most_arguments[0] >= std::string(R"({"city":"Paris\n\"x\"")").size());
    CHECK(most_arguments[1] > 0);
  }
}

TEST_CASE("the name of a cut call is there once it is complete, and arguments as far as they are JSON") {
  const AnswerForm objects = form_of(families()[0].source);
  CHECK(shown(objects, "<tool_call>") == " ");
  CHECK(shown(objects, R"(<tool_call>{"name": "look_)") == " ");
  CHECK(shown(objects, R"(<tool_call>{"name": "look_up")") == "look_up ");
  CHECK(shown(objects, R"(<tool_call>{"name": "look_up", "arguments": {"city": "Par)") == R"(look_up {"city": "Par)");
  CHECK(shown(objects, R"(<tool_call>{"name": "look_up", "arguments": {"city": "Paris"})") == R"(look_up {"city":"Paris"})");
  CHECK(shown(objects, R"(<tool_call>{"arguments": {"a": 1}, "name": "f")") == R"(f {"a":1})");
  CHECK(shown(objects, R"(<tool_call>{"name": "f", "arguments": "{\"a\": \"\u00e9\)") == "f {\"a\": \"\xc3\xa9");
  CHECK(shown(objects, R"(<tool_call>{"name": "f", "arguments": "{\"a\": \"\ud83d\ude)") == "f {\"a\": \"");
  CHECK(shown(objects, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\xc3") == "f {\"a\": \"");
  const AnswerForm keyed = form_of(families()[2].source), parameters = form_of(families()[6].source),
                   python = form_of(families()[10].source), quoted = form_of(families()[11].source);
  CHECK(shown(keyed, R"(<|tools_prefix|>[{"f": {"a": [1)") == R"(f {"a": [1)");
  CHECK(shown(parameters, "<tool_call>\n<func") == " ");
  CHECK(shown(parameters, "<tool_call>\n<function=f") == " ");
  CHECK(shown(parameters, "<tool_call>\n<function=f>\n") == "f {");
  CHECK(shown(parameters, "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n<parameter=b>\ny") == R"(f {"a":"x")");
  CHECK(shown(python, "<|tool_call_start|>[f(") == "f {");
  CHECK(shown(python, "<|tool_call_start|>[f(a='x', b=[1, 2") == R"(f {"a":"x")");
  CHECK(shown(quoted, "<|tool_call>call:f{a:<|\"|>x, y<|\"|>,b:{c:1,d:") == R"(f {"a":"x, y")");
  // Elements of a list that are complete are calls, whether or not the list ends.
  const AnswerForm list = form_of(families()[1].source);
  const Answer two = parse_answer(list, R"(<TOOLS>[{"tool": "f", "parameters": {}}, {"tool": "g", "call_id": "x7", "par)");
  REQUIRE(two.calls.size() == 1);
  REQUIRE(two.cut_call);
  CHECK(two.calls[0].name == "f");
  CHECK(two.cut_call->name == "g");
  CHECK(message_json(two)["cut_call"] == Json({{"id", "x7"}, {"name", "g"}, {"arguments", ""}}));
  const Answer one = parse_answer(list, R"(<TOOLS>[{"tool": "f", "parameters": {}})");
  CHECK(one.calls.size() == 1);
  CHECK(!one.cut_call);
  CHECK(!one.is_complete);
  // An id is made where none is there.
  const std::string id = message_json(parse_answer(objects, R"(<tool_call>{"name": "f", "a)"), 1)["cut_call"]["id"];
  CHECK(id.size() == 9);
}

TEST_CASE("an answer that ends within a mark has nothing of it") {
  const AnswerForm form = form_of(families()[0].source);
  for (const char* text : {"Hi <too", "Hi <tool_call"}) {
    const Answer answer = parse_answer(form, text);
    CHECK(answer.content == "Hi");
    REQUIRE(answer.cut_call);
    CHECK(answer.cut_call->name.empty());
  }
  // Not yet a call's alone.
  const AnswerForm harmony = of_words("<|start|> <|channel|>analysis<|message|>");
  for (const char* text : {"<|channel|>comm", "<|channel|>final<|mess"}) {
    const Answer answer = parse_answer(harmony, text);
    CHECK(answer.content.empty());
    CHECK(!answer.cut_call);
    CHECK(!answer.is_complete);
  }
  const Answer reasoned = parse_answer(form, "<think>hm</thi");
  CHECK(reasoned.reasoning == "hm");
  CHECK(parse_answer(form, "<think>hm <tool_call").reasoning == "hm <tool_call");
  for (const char* text : {"s<t", "a <tab", "Here"}) CHECK(parse_answer(form, text).content == text);
}

TEST_CASE("without marks, an object is a call once it has a name and arguments") {
  const AnswerForm form =
      form_of(chat_ml("{% for c in m.tool_calls %}{\"name\": \"{{ c.function.name }}\", \"parameters\": {{ "
                      "c.function.arguments | tojson }}}{% endfor %}"));
  for (const char* text : {R"({"name": "Ada")", R"({"name": "f", "para)", R"({"parameters": {"a)"}) {
    const Answer answer = parse_answer(form, text);
    CHECK(answer.content == text);
    CHECK(!answer.cut_call);
  }
  CHECK(shown(form, R"({"name": "f", "parameters": {"a": "x)") == R"(f {"a": "x)");
  const Answer second = parse_answer(form, R"({"name": "f", "parameters": {}}; {"name": "g", "parameters": {"b)");
  CHECK(second.calls.size() == 1);
  REQUIRE(second.cut_call);
  CHECK(second.cut_call->name == "g");
  CHECK(second.content.empty());
}

TEST_CASE("the places of reasoning are those of its text and marks") {
  const AnswerForm form = form_of(families()[0].source);
  const auto ranges = [](const AnswerForm& of, const std::string& text, const std::string& opening = {}) {
    AnswerStream stream(of, {opening, Json()});
    (void)stream.add(text);
    (void)stream.finish();
    std::string found;
    for (const ReasoningRange& range : stream.reasoning_ranges())
      found += "[" + text.substr(range.begin, range.end - range.begin) + "]";
    return found;
  };
  CHECK(ranges(form, "Yes.").empty());
  CHECK(ranges(form, "\n<think>hm</think>\nYes.") == "[<think>hm</think>]");
  CHECK(ranges(form, "hm</think>\nYes.", "<think>") == "[hm</think>]");
  CHECK(ranges(form, "hm ", "<think>") == "[hm ]");
  const AnswerForm harmony = of_words("<|start|> <|channel|>analysis<|message|>");
  const std::string part = "<|channel|>analysis<|message|>hm<|end|>";
  CHECK(ranges(harmony, part + "<|start|>assistant" + part + "<|start|>assistant<|channel|>final<|message|>Yes.") ==
        "[" + part + "][" + part + "]");
}

}  // namespace tessera
