// Answers: what a model wrote, taken apart as its chat template writes messages.
#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/call_families.h"
#include "tests/ok.h"
#include "tests/parsed_answer.h"
#include "text/answer/stream.h"
#include "text/chat_template.h"

namespace tessera {
namespace {

using test::chat_ml;
using test::families;
using test::Family;
using test::ok;

AnswerForm form_of(const std::string& source) {
  return AnswerForm::of(*ok(ChatTemplate::create(source, {})));
}

const Json& tools() {
  static const Json made =
      Json::parse(R"([{"type": "function", "function": {"name": "look_up", "parameters": {"type":
      "object", "properties": {"city": {"type": "string"}, "days": {"type": "number"}, "code": {"type": "string"}}}}}])");
  return made;
}

const std::vector<Json>& messages() {
  static const std::vector<Json> made = [] {
    const auto call = [](std::string_view name, std::string_view arguments) {
      return Json{{"id", "abcdefgh1"},
                  {"type", "function"},
                  {"function", {{"name", name}, {"arguments", Json::parse(arguments)}}}};
    };
    const Json warm = call("look_up", R"({"city": "Paris", "days": 4})");
    const Json odd = call("look_up", R"j({"city": "007", "code": "if a < b:\n  f(\"x\", 'y')\n"})j");
    const Json deep =
        call("other_one", R"({"where": {"k": [1, "b", true, null, {"z": -2.5}], "e": {}}, "on": false})");
    std::vector<Json> all;
    for (const char* reasoning : {"", "Let me see.\n\nIt is <b>easy</b>."})
      for (const char* content : {"", "Two lines\n\n  [x] {y} <z>."})
        for (const std::vector<Json>& calls :
             {std::vector<Json>{}, {warm}, {odd}, {deep}, {warm, odd, deep}}) {
          Json message = {{"role", "assistant"}, {"content", content}};
          if (*reasoning) message["reasoning_content"] = reasoning;
          if (!calls.empty()) message["tool_calls"] = calls;
          if (*reasoning || *content || !calls.empty()) all.push_back(message);
        }
    return all;
  }();
  return made;
}

struct Shown {
  std::string opening, text;
};

// The assistant's text after the template's generation prompt, up to the end of the turn.
Shown show(const ChatTemplate& chat, const AnswerForm& form, const Json& message) {
  ChatRequest request;
  request.tools = tools();
  request.messages = Json::array();
  request.messages.push_back({{"role", "user"}, {"content", "Hi"}});
  request.add_generation_prompt = true;
  const std::string prompt = ok(chat.render(request)).text;
  request.add_generation_prompt = false;
  request.messages.push_back(message);
  const std::string whole = ok(chat.render(request)).text;
  const bool goes_on = whole.starts_with(prompt);
  const size_t begin = goes_on ? prompt.size() : prompt.rfind('\n') + 1;
  return {goes_on ? form.opening_of(prompt) : "", whole.substr(begin, whole.rfind("<|im_end|>") - begin)};
}

Json plain(Json message) {
  if (message.contains("tool_calls"))
    for (Json& call : message["tool_calls"]) call.erase("id");
  return message;
}

Answer stream_in(const AnswerForm& form, const AnswerContext& context, std::string_view text, size_t first,
                 size_t size) {
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
  CHECK(answer.reasoning.starts_with(reasoning));
  CHECK(answer.content.starts_with(content));
  return answer;
}

Json parsed(const AnswerForm& form, std::string_view text, std::string opening = {}) {
  const AnswerContext context{std::move(opening), Json()};
  const Answer whole = parse_answer(form, text, context);
  for (size_t first = 1; first < text.size(); ++first)
    CHECK(message_json(stream_in(form, context, text, first, text.size())) == message_json(whole));
  CHECK(message_json(stream_in(form, context, text, 1, 1)) == message_json(whole));
  return message_json(whole);
}

std::string content_of(const Json& message) { return message["content"].get<std::string>(); }
std::string calls_of(const Json& message) {
  std::string text;
  if (message.contains("tool_calls"))
    for (const Json& call : message["tool_calls"])
      text += call["function"]["name"].get<std::string>() + dump(call["function"]["arguments"]) + ";";
  return text;
}

}  // namespace

TEST_CASE(
    "answers in every way that templates write calls come back as the messages they were rendered from") {
  for (const Family& family : families()) {
    CAPTURE(family.name);
    const auto chat = ok(ChatTemplate::create(family.source, {}));
    const AnswerForm form = AnswerForm::of(*chat);
    REQUIRE(form.calls.size() == 1);
    for (const Json& message : messages()) {
      const Shown shown = show(*chat, form, message);
      CAPTURE(shown.text);
      const AnswerContext context{shown.opening, tools()};
      const Answer answer = parse_answer(form, shown.text, context);
      CHECK(answer.is_complete);
      CHECK(plain(message_json(answer)) == plain(message));
      CHECK(message_json(parse_answer(form, shown.text + "<|im_end|>", context)) == message_json(answer));
      CHECK(message_json(stream_in(form, context, shown.text, 1, 1)) == message_json(answer));
      for (size_t first = 1; first < shown.text.size(); first += 7)
        CHECK(message_json(stream_in(form, context, shown.text, first, shown.text.size())) ==
              message_json(answer));
    }
  }
}

TEST_CASE("ids of calls are kept where the form has them, and are made where it has none") {
  const AnswerForm with = form_of(families()[1].source), without = form_of(families()[0].source);
  CHECK(with.calls[0].id_key == "call_id");
  const Json message = parsed(with, R"(<TOOLS>[{"tool": "f", "call_id": "x7", "parameters": {}}]</TOOLS>)");
  CHECK(message["tool_calls"][0]["id"] == "x7");
  const Json made =
      parsed(without, "<tool_call>{\"name\": \"f\"}</tool_call><tool_call>{\"name\": \"g\"}</tool_call>");
  const auto ids = [](const Json& message) {
    std::vector<std::string> all;
    for (const Json& call : message["tool_calls"]) all.push_back(call["id"]);
    return all;
  };
  REQUIRE(ids(made).size() == 2);
  CHECK(ids(made)[0] != ids(made)[1]);
  for (const std::string& id : ids(made)) {
    CHECK(id.size() == 9);
    CHECK(std::ranges::all_of(id, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }));
  }
  const Answer answer = parse_answer(without, "<tool_call>{\"name\": \"f\"}</tool_call>");
  CHECK(ids(message_json(answer, 1)) == ids(message_json(answer, 1)));
  CHECK(ids(message_json(answer, 1)) != ids(message_json(answer, 2)));
  // An id that the model repeats is that of its first call.
  const Json repeated = parsed(with, R"(<TOOLS>[{"tool": "f", "call_id": "x7", "parameters": {}}, )"
                                     R"({"tool": "g", "call_id": "x7", "parameters": {}}]</TOOLS>)");
  CHECK(repeated["tool_calls"][0]["id"] == "x7");
  CHECK(repeated["tool_calls"][1]["id"] != "x7");
}

// Values that are written bare, by the schema of their parameter; tests/reference/bare_arguments.py compares many with
// Python's jsonschema.
TEST_CASE("a value that is written bare is a text where its schema names texts and allows it") {
  const auto argument = [](const AnswerForm& form, const std::string& text, const Json& parameters) {
    Json offered = Json::array();
    offered.push_back({{"type", "function"}, {"function", {{"name", "f"}, {"parameters", parameters}}}});
    const Answer answer = parse_answer(form, text, {"", offered});
    REQUIRE(answer.calls.size() == 1);
    return answer.calls[0].arguments;
  };
  struct Row {
    const char* schema;
    const char* raw;
    const char* wanted;  // JSON
  };
  const Row rows[] = {
      {R"({"type": "string"})", "5", R"("5")"},
      {R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", "true", R"("true")"},
      {R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", "null", "null"},
      {R"({"type": "string"})", "null", R"("null")"},
      {R"({"type": ["string", "null"]})", "1e5", R"("1e5")"},
      {R"({"oneOf": [{"type": "null"}, {"type": "string"}]})", "007", R"("007")"},
      {R"({"$ref": "#/$defs/S"})", "{\"a\": 1}", R"("{\"a\": 1}")"},
      {R"({"allOf": [{"$ref": "#/$defs/S"}]})", "[1]", R"("[1]")"},
      {R"({"$ref": "#/$defs/deep/$defs/S"})", "1", R"("1")"},
      {R"({"enum": ["1", "2"]})", "1", R"("1")"},
      {R"({"enum": ["1", 2]})", "2", "2"},
      {R"({"const": "true"})", "true", R"("true")"},
      {R"({"const": true})", "true", "true"},
      {R"({"minLength": 1})", "5", R"("5")"},
      {R"({"format": "date"})", "5", R"("5")"},
      {R"({"anyOf": [{"type": "string", "pattern": "^[a-z]+$"}, {"type": "integer"}]})", "12", "12"},
      {R"({"anyOf": [{"type": "string", "maxLength": 2}, {"type": "integer"}]})", "123", "123"},
      {R"({"type": ["string", "integer"]})", "12", R"("12")"},
      {R"({"type": "string", "nullable": true})", "5", R"("5")"},
      {R"({"type": "integer"})", "true", R"("true")"},
      {R"({"type": "boolean"})", "1", R"("1")"},
      {R"({"type": "number"})", "1e2", "100.0"},
      {R"({"type": "integer", "maximum": 3})", "7", "7"},
      {R"({"type": "string", "minLength": 3})", "7", R"("7")"},
      {R"({"type": "object"})", "{'a': None}", R"({"a": null})"},
      {R"({"not": {"type": "string"}})", "5", "5"},
      {R"({"description": "anything"})", "5", "5"},
      {R"({"$ref": "https://example.org/x"})", "5", "5"},
      {R"({"$ref": "#/$defs/loop"})", "5", "5"},
      {R"({"if": {"type": "string"}, "then": {"minLength": 9}})", "5", "5"},
  };
  for (const size_t family : {6u, 7u, 9u}) {  // parameters, keys and values, tags of keys
    const AnswerForm form = form_of(families()[family].source);
    for (const Row& row : rows) {
      CAPTURE(row.schema);
      Json parameters = {{"type", "object"}, {"properties", {{"k", Json::parse(row.schema)}}}};
      parameters["$defs"] = Json::parse(R"({"S": {"type": "string"}, "deep": {"$defs": {"S": {"type": "string"}}},
                                             "loop": {"$ref": "#/$defs/loop"}})");
      const std::string raw = row.raw;
      const std::string text =
          family == 6   ? "<tool_call><function=f><parameter=k>" + raw + "</parameter></function></tool_call>"
          : family == 7 ? "<tool_call>f<arg_key>k</arg_key><arg_value>" + raw + "</arg_value></tool_call>"
                        : "<call name=\"f\"><k>" + raw + "</k></call>";
      CHECK(dump(argument(form, text, parameters)) == "{\"k\":" + dump(Json::parse(row.wanted)) + "}");
    }
  }
  // Names that other keywords describe, and values within others.
  const AnswerForm form = form_of(families()[6].source), tags = form_of(families()[9].source);
  const std::string call = "<tool_call><function=f><parameter=k>5</parameter></function></tool_call>";
  CHECK(argument(form, call, {{"additionalProperties", {{"type", "string"}}}})["k"] == "5");
  CHECK(argument(form, call, {{"patternProperties", {{"^k", {{"type", "string"}}}}}})["k"] == "5");
  CHECK(argument(form, call, {{"patternProperties", {{"^j", {{"type", "string"}}}}}})["k"] == 5);
  CHECK(argument(form, call, Json::parse(R"({"anyOf": [{"properties": {"k": {"type": "string"}}}]})"))["k"] == "5");
  const Json nested = Json::parse(R"({"properties": {"k": {"type": "array", "items": {"properties":
      {"zip": {"type": "string"}, "n": {"type": "integer"}}}}, "t": {"type": "string"}}})");
  CHECK(dump(argument(tags, "<call name=\"f\"><k><item><zip>007</zip><n>1</n></item></k><t><b>1</b></t></call>",
                      nested)) == R"({"k":[{"zip":"007","n":1}],"t":"<b>1</b>"})");
}

TEST_CASE("marks around content with calls behind it are no part of the calls") {
  const AnswerForm form = form_of(
      "{% for m in messages %}{% if m.tool_calls %}<|header_start|>assistant<|header_end|>\n\n<|python_start|>"
      "{{ m.content }}<|python_end|>{% for c in m.tool_calls %}{{ '{\"name\": \"' + c.function.name + '\", ' }}"
      "{{ '\"parameters\": ' }}{{ c.function.arguments | tojson }}{{ '}' }}{% endfor %}<|eot|>{% else %}"
      "<|header_start|>{{ m.role }}<|header_end|>\n\n{{ m.content }}<|eot|>{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<|header_start|>assistant<|header_end|>\n\n{% endif %}");
  const std::string call = R"({"name": "f", "parameters": {"a": 1}})";
  for (const std::string content : {"", "I look."}) {
    for (const std::string& text : {"<|python_start|>" + content + "<|python_end|>" + call + "<|eot|>",
                                    "<|python_start|>" + content + "<|python_end|>" + call + call}) {
      CAPTURE(text);
      const Json message = parsed(form, text);
      CHECK(content_of(message) == content);
      CHECK(calls_of(message).starts_with("f{\"a\":1};"));
    }
  }
  CHECK(calls_of(parsed(form, call)) == "f{\"a\":1};");
  CHECK(calls_of(parsed(form, "<|python_start|>" + call + "<|python_end|><|eot|>")) == "f{\"a\":1};");
  CHECK(content_of(parsed(form, "<|python_start|>" + call + "<|python_end|><|eot|>")).empty());
  CHECK(content_of(parsed(form, "Just words.<|eot|>")) == "Just words.");
}

TEST_CASE("models may vary white space, the order of members, and arguments in a text") {
  const AnswerForm form = form_of(families()[0].source);
  CHECK(calls_of(parsed(form, "<tool_call>{\"arguments\":{\"a\" : 1},\"name\":\"f\"}</tool_call>")) ==
        "f{\"a\":1};");
  CHECK(calls_of(parsed(form,
                        "Ok.\n\n\n<tool_call>  {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": "
                        "[2]}\"}\n\n</tool_call>\n")) == "f{\"a\":[2]};");
  CHECK(calls_of(parsed(
            form, "<tool_call>{\"function\": {\"name\": \"f\", \"parameters\": {}}}</tool_call>")) == "f{};");
  CHECK(calls_of(parsed(form, "<tool_call>[{\"name\": \"f\"}, {\"name\": \"g\"}]</tool_call>")) ==
        "f{};g{};");
  const AnswerForm parameters = form_of(families()[6].source);
  CHECK(
      calls_of(parsed(parameters,
                      "<tool_call><function=f><parameter=a>1</parameter><parameter=b>{'k': None}</parameter>"
                      "<parameter=c>x</parameter></function></tool_call>")) ==
      "f{\"a\":1,\"b\":{\"k\":null},\"c\":\"x\"};");
}

TEST_CASE("a closing mark within a text of code is of the text") {
  const AnswerForm form = form_of(families()[6].source);
  const Json message = parsed(form,
                              "<tool_call>\n<function=f>\n<parameter=code>\n<x>\n</parameter> and "
                              "on\n</parameter>\n</function>\n</tool_call>");
  CHECK(calls_of(message) == R"(f{"code":"<x>\n</parameter> and on"};)");
}

TEST_CASE("what is no well-formed call is content as it is written") {
  const AnswerForm form = form_of(families()[0].source);
  for (const std::string text :
       {"a <tool_call>\nnot JSON\n</tool_call> b", "<tool_call>{\"name\": 3}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"f\",}</tool_call>", "<tool_call>{\"name\": \"f\"} and", "<to", "1 < 2 <",
        "<tool_call>{\"name\": \"\xff\"}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 01}}</tool_call>",
        "x </think> y  \n "}) {
    CAPTURE(text);
    const Answer answer = parse_answer(form, text);
    CHECK(answer.content == text);
    CHECK(answer.calls.empty());
    CHECK(stream_in(form, {}, text, 1, 1).content == text);
  }
  const Json message = parsed(form, "<tool_call>oh <tool_call>{\"name\": \"f\"}</tool_call>");
  CHECK(content_of(message) == "<tool_call>oh");
  CHECK(calls_of(message) == "f{};");
}

TEST_CASE("a text that ends before its last mark has the calls that are whole, and says that it is cut") {
  const AnswerForm form = form_of(families()[0].source);
  for (const char* text : {"<tool_call>{\"name\": \"f\"}", "<tool_call>{\"name\": \"f\"}\n</tool_"}) {
    const Answer answer = parse_answer(form, text);
    CHECK(answer.calls.size() == 1);
    CHECK(answer.content.empty());
    CHECK(!answer.is_complete);
  }
  const AnswerForm section = form_of(families()[5].source);
  const Answer answer = parse_answer(
      section, "<|section|><|call|>functions.f:0<|args|>{}<|/call|><|call|>functions.g:1<|args|>{\"a");
  CHECK(answer.calls.size() == 1);
  CHECK(answer.content.empty());
  CHECK(!answer.is_complete);
}

TEST_CASE("reasoning that the prompt began ends where its mark stands") {
  const AnswerForm form = form_of(families()[7].source);
  CHECK(form.default_opening == "<think>");
  CHECK(form.opening_of("<|im_start|>assistant\n<think>\n") == "<think>");
  CHECK(form.opening_of("<|im_start|>assistant\n<think>\n\n</think>\n\n") == "");
  Json message = parsed(form, "\nhm\n</think>\n\nYes.", "<think>");
  CHECK(message["reasoning_content"] == "hm");
  CHECK(content_of(message) == "Yes.");
  message = parsed(form, "<think>hm</think>Yes.", "<think>");
  CHECK(message["reasoning_content"] == "hm");
  CHECK(content_of(parsed(form, "</think>Yes.", "<think>")) == "Yes.");
  CHECK(content_of(parsed(form, "A <think> in content.")) == "A <think> in content.");
  const Answer cut = parse_answer(form, "hm", {"<think>", Json()});
  CHECK(cut.reasoning == "hm");
  CHECK(!cut.is_complete);
}

TEST_CASE("an answer streams word by word, and holds back only what may be a mark") {
  const AnswerForm form = form_of(families()[0].source);
  AnswerStream stream(form);
  CHECK(stream.add("<think>I ").reasoning == "I");
  CHECK(stream.add("see").reasoning == " see");
  CHECK(stream.add("</thi").reasoning == "");
  CHECK(stream.add("nk>\n\nOne").content == "One");
  CHECK(stream.add(" two <").content == " two");
  CHECK(stream.add("b> ").content == " <b>");
  CHECK(stream.add("\n<tool_call>\n{\"name\": \"f\"}").content == "");
  CHECK(stream.add("\n</tool_call>").content == "");
  CHECK(stream.answer().calls.size() == 1);
  const Answer answer = stream.finish();
  CHECK(answer.content == "One two <b>");
  CHECK(answer.is_complete);
}

TEST_CASE("calls without marks are objects at the beginning, and any other JSON is content") {
  const AnswerForm form =
      form_of(chat_ml("{% for c in m.tool_calls %}{\"name\": \"{{ c.function.name }}\", \"parameters\": {{ "
                      "c.function.arguments | tojson }}}{% endfor %}{# <|python_tag|> #}"));
  CHECK(calls_of(parsed(form, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}")) == "f{\"a\":1};");
  CHECK(calls_of(parsed(form, " {\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}")) == "f{};");
  CHECK(calls_of(parsed(form, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}")) == "f{};");
  CHECK(calls_of(parsed(form, "<|python_tag|>search.call(query=\"x \\\"y\\\"\", n=2)")) ==
        R"(search{"query":"x \"y\"","n":2};)");
  CHECK(calls_of(
            parsed(form, "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}")) ==
        "f{};g{};");
  const Json separate = parsed(form, "{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"Ada\"}");
  CHECK(content_of(separate) == "; {\"name\": \"Ada\"}");
  for (const char* text : {"{\"name\": \"Ada\"}", "{\"city\": \"Rome\"}",
                           "So: {\"name\": \"f\", \"parameters\": {}}", "{", "{ }"})
    CHECK(content_of(parsed(form, text)) == text);
  AnswerStream stream(form);
  CHECK(stream.add("{\"city\"").content == "{\"city\"");
}

TEST_CASE("forms that templates do not show are known by their words") {
  const auto of_words = [](std::string_view words) {
    return form_of(chat_ml("{# " + std::string(words) + " #}"));
  };
  const AnswerForm harmony = of_words("<|start|> <|channel|>analysis<|message|>");
  Json message = parsed(
      harmony,
      "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>I look."
      "<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": "
      "1}<|call|>");
  CHECK(message["reasoning_content"] == "hm");
  CHECK(content_of(message) == "I look.");
  CHECK(calls_of(message) == "f{\"a\":1};");
  message =
      parsed(harmony, "to=functions.f<|channel|>commentary json<|message|>{}<|call|>", "<|start|>assistant");
  CHECK(calls_of(message) == "f{};");
  CHECK(content_of(parsed(harmony, "<|channel|>final<|message|>Hello <b>.<|return|>",
                          "<|start|>assistant")) == "Hello <b>.");
  CHECK(calls_of(parsed(
            of_words("<|tool_calls_section_begin|>"),
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>{}"
            "<|tool_call_end|><|tool_calls_section_end|>")) == "f{};");
  CHECK(calls_of(parsed(of_words("available_tools"),
                        "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]")) == "f{};");
  CHECK(calls_of(parsed(of_words("<|tool_list_start|>"),
                        "<|tool_call_start|>[f(a='1', b=[None, 2.5])]<|tool_call_end|>")) ==
        "f{\"a\":\"1\",\"b\":[null,2.5]};");
  CHECK(calls_of(parsed(of_words("[TOOL_CALLS]"),
                        "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}, \"id\": \"123456789\"}]")) ==
        "f{};");
  CHECK(of_words("nothing of that").calls.empty());
}

TEST_CASE("the marks are told, so that their tokens are decoded as text") {
  const std::vector<std::string> marks = form_of(families()[6].source).markers();
  for (const char* mark : {"<think>", "</think>", "<tool_call>\n<function=", "</function>\n</tool_call>",
                           "<parameter=", "</parameter>", "<|im_end|>"})
    CHECK(std::ranges::find(marks, mark) != marks.end());
}

TEST_CASE("long texts of anything are read once, without recursion") {
  const size_t count = size_t{1} << 18;
  std::vector<std::string> texts;
  for (const char* part : {"[",
                           "{",
                           "(",
                           "<",
                           "{\"name\":",
                           "<tool_call>",
                           "<tool_call>{",
                           "<tool_call>[",
                           "<tool_call>{\"name\": \"",
                           "</think>",
                           "<think>",
                           " ",
                           "\n<",
                           "\xff",
                           "\"",
                           "\\",
                           "<tool_call>\n<function=f>\n<parameter=a>\n",
                           "</parameter>",
                           "<arg_key>",
                           "<tool_call>f<arg_key>a</arg_key><arg_value>",
                           "[CALLS]f[ARGS]{\"a\":[",
                           "<|tool_call_start|>[f(a='",
                           "<|tool_call>call:f{a:<|\"|>",
                           "<call name=\"f\"><a><a>"}) {
    std::string text;
    while (text.size() < count) text += part;
    texts.push_back(std::move(text));
  }
  std::string members = "<tool_call>{\"name\": \"f\", \"arguments\": {";
  for (int i = 0; i < 20000; ++i) members += "\"k" + std::to_string(i) + "\": 1, ";
  texts.push_back(members + "\"z\": 1}}</tool_call>");
  for (const Family& family : families()) {
    CAPTURE(family.name);
    const AnswerForm form = form_of(family.source);
    for (const std::string& text : texts) {
      const Answer whole = parse_answer(form, text);
      const Answer pieces = stream_in(form, {}, text, 100, 100);
      CHECK((whole.content == pieces.content && whole.reasoning == pieces.reasoning &&
             whole.calls.size() == pieces.calls.size()));
    }
  }
}

TEST_CASE("three thousand broken answers give the same in one piece and in many") {
  std::mt19937 random(7);
  const auto below = [&random](size_t bound) {
    return std::uniform_int_distribution<size_t>(0, bound - 1)(random);
  };
  for (const Family& family : families()) {
    CAPTURE(family.name);
    const auto chat = ok(ChatTemplate::create(family.source, {}));
    const AnswerForm form = AnswerForm::of(*chat);
    for (int i = 0; i < 250; ++i) {
      const Shown shown = show(*chat, form, messages()[below(messages().size())]);
      std::string text = shown.text;
      for (size_t changes = 1 + below(5); changes > 0 && !text.empty(); --changes) {
        const size_t at = below(text.size());
        switch (below(5)) {
          case 0: text.erase(at, 1 + below(9)); break;
          case 1: text.insert(at, text.substr(below(text.size()), below(30))); break;
          case 2: text[at] = static_cast<char>(below(256)); break;
          case 3: text.insert(at, 1, "<>{}[]()\"'\\\n:,"[below(14)]); break;
          default: text.resize(at);
        }
      }
      CAPTURE(text);
      const AnswerContext context{shown.opening, tools()};
      const Answer whole = parse_answer(form, text, context),
                   pieces = stream_in(form, context, text, 1, 1 + below(4));
      CHECK(dump(message_json(whole)) == dump(message_json(pieces)));
      CHECK(whole.is_complete == pieces.is_complete);
    }
  }
}

}  // namespace tessera
