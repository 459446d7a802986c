// Calls of tools that a grammar obliges: texts at random in each template's syntax, read back and held against the schemas.
#include "text/answer/call_grammar.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/call_families.h"
#include "tests/ok.h"
#include "tests/parsed_answer.h"
#include "tests/random_calls.h"
#include "tests/serialize/grammar_support.h"
#include "text/chat_template.h"

namespace tessera {
namespace {

using grammar::Constraint;
using grammar::MaskCache;
using test::chat_ml;
using test::Family;
using test::ok;
using test::RandomCalls;
using test::tags_of;
using test::Vocabulary;

// Forms that words of the template tell, and calls without marks.
const std::vector<Family>& templates() {
  static const std::vector<Family> all = [] {
    std::vector<Family> made = test::families();
    made.push_back({"channels", "{# <|channel|>analysis<|message|> #}{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ "
                                "m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"});
    made.push_back({"counted by name", chat_ml("{# <|tool_calls_section_begin|> #}")});
    made.push_back({"a list of Python", chat_ml("{# <|tool_call_start|> #}")});
    made.push_back({"bare objects", chat_ml("{% for c in m.tool_calls %}{\"name\": \"{{ c.function.name }}\", \"parameters\": {{ "
                                            "c.function.arguments | tojson }}}{% endfor %}")});
    return made;
  }();
  return all;
}

const Json& tools() {
  static const Json made = Json::parse(R"([
    {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {
      "city": {"type": "string", "maxLength": 12},
      "days": {"type": "integer", "minimum": 1, "maximum": 14},
      "unit": {"enum": ["C", "F", "it's"]},
      "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
      "place": {"$ref": "#/$defs/place"},
      "more": {"anyOf": [{"type": "boolean"}, {"type": "null"}, {"type": "string", "pattern": "^[A-Z]{2}$"}]}},
      "required": ["city", "unit"], "additionalProperties": false, "$defs": {"place": {"type": "object", "properties": {
        "lat": {"type": "number"}, "name": {"type": "string"}}, "required": ["lat"], "additionalProperties": false}}}}},
    {"type": "function", "function": {"name": "add-note", "parameters": {"type": "object", "properties": {
      "text": {"type": "string"}, "at": {"type": "string", "format": "date"}}, "required": ["text"]}}},
    {"type": "function", "function": {"name": "now"}}])");
  return made;
}

bool has_only(const Json& object, std::initializer_list<std::string_view> keys) {
  return object.is_object() && std::ranges::all_of(object.items(), [&](const auto& each) {
           return std::ranges::find(keys, each.key()) != keys.end();
         });
}

size_t count_characters(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

bool is_pair_of_capitals(const Json& value) {
  const auto is_capital = [](char c) { return c >= 'A' && c <= 'Z'; };
  return value.is_string() && value.get<std::string>().size() == 2 && std::ranges::all_of(value.get<std::string>(), is_capital);
}

// Checks arguments by the rules that the schemas of tools() state, without a schema's reader.
bool is_valid(const std::string& name, const Json& given) {
  if (name == "now") return given.is_object() && given.empty();
  if (name == "add-note")
    return has_only(given, {"text", "at"}) && given.contains("text") && given["text"].is_string() &&
           (!given.contains("at") || (given["at"].is_string() && given["at"].get<std::string>().size() == 10));
  if (name != "look_up" || !has_only(given, {"city", "days", "unit", "tags", "place", "more"})) return false;
  if (!given.contains("city") || !given["city"].is_string() || count_characters(given["city"].get<std::string>()) > 12)
    return false;
  const Json unit = given.value("unit", Json());
  if (unit != "C" && unit != "F" && unit != "it's") return false;
  if (given.contains("days") && !(given["days"].is_number_integer() && given["days"] >= 1 && given["days"] <= 14)) return false;
  if (given.contains("tags")) {
    const Json& tags = given["tags"];
    if (!tags.is_array() || tags.size() > 3 || !std::ranges::all_of(tags, [](const Json& tag) { return tag.is_string(); }))
      return false;
  }
  if (given.contains("place")) {
    const Json& place = given["place"];
    if (!has_only(place, {"lat", "name"}) || !place.contains("lat") || !place["lat"].is_number()) return false;
    if (place.contains("name") && !place["name"].is_string()) return false;
  }
  const Json more = given.value("more", Json());
  return more.is_boolean() || more.is_null() || is_pair_of_capitals(more);
}

// Answers of a grammar, parsed: each must be calls alone, with valid arguments. Returns the calls by name.
std::map<std::string, int> check_texts(const AnswerForm& form, const CallGrammar& wanted, int count, uint32_t seed) {
  RandomCalls random(ok(make_call_grammar(form, wanted)), form, wanted.control_tokens, wanted.tools, seed);
  std::map<std::string, int> counts;
  for (int i = 0; i < count; ++i) {
    const std::string text = ok(random.write());
    CAPTURE(text);
    const Answer answer = parse_answer(form, text, {wanted.opening, tools()});
    CAPTURE(dump(message_json(answer)));
    CHECK(answer.content.empty());
    REQUIRE(!answer.calls.empty());
    if (!wanted.name.empty()) CHECK(answer.calls.size() == 1);
    for (const ToolCall& call : answer.calls) {
      if (!wanted.name.empty()) CHECK(call.name == wanted.name);
      CHECK(is_valid(call.name, call.arguments));
      ++counts[call.name];
    }
  }
  return counts;
}

}  // namespace

TEST_CASE("calls that are required or named are read back as calls of their schemas, in every syntax") {
  constexpr int kTexts = 100;
  for (const Family& family : templates()) {
    CAPTURE(std::string(family.name));
    const AnswerForm form = AnswerForm::of(*ok(ChatTemplate::create(family.source, {})));
    REQUIRE(!form.calls.empty());
    CallGrammar wanted;
    wanted.tools = tools();
    wanted.opening = form.default_opening;
    for (const bool has_control : {false, true}) {
      if (has_control) wanted.control_tokens = tags_of(form);
      wanted.name.clear();
      CHECK(check_texts(form, wanted, kTexts, 1 + has_control).size() == 3);
      wanted.name = "look_up";
      CHECK(check_texts(form, wanted, kTexts, 3 + has_control).size() == 1);
    }
  }
}

TEST_CASE("a mark that is a control token is written by it alone, and it stands nowhere else") {
  const AnswerForm form = AnswerForm::of(*ok(ChatTemplate::create(test::families()[0].source, {})));
  CallGrammar wanted;
  wanted.tools = tools();
  wanted.name = "now";
  wanted.may_reason = false;
  wanted.control_tokens = {"<tool_call>", "</tool_call>"};
  const Vocabulary vocabulary(wanted.control_tokens);
  const auto cache = std::make_shared<MaskCache>(ok(make_call_grammar(form, wanted)), vocabulary.tokens);
  Constraint text(cache);
  CHECK_FALSE(Constraint(text).accept('<').ok());
  CHECK_FALSE(Constraint(text).accept(258).ok());
  CHECK(text.accept(257).ok());
  for (const char c : std::string("\n{\"name\": \"now\", \"arguments\": {}}\n")) REQUIRE(text.accept(c).ok());
  CHECK_FALSE(text.can_end());
  CHECK_FALSE(Constraint(text).accept('<').ok());
  CHECK(text.accept(258).ok());
  CHECK(text.must_end());
  // In a text there is none.
  wanted.name = "add-note";
  Constraint note(std::make_shared<MaskCache>(ok(make_call_grammar(form, wanted)), vocabulary.tokens));
  REQUIRE(note.accept(257).ok());
  for (const char c : std::string("{\"name\":\"add-note\",\"arguments\":{\"text\":\"<tool")) REQUIRE(note.accept(c).ok());
  CHECK_FALSE(Constraint(note).accept(257).ok());
  CHECK(note.accept('_').ok());
}

TEST_CASE("a mark behind the calls that ends texts is left to the end") {
  const AnswerForm form = AnswerForm::of(*ok(ChatTemplate::create(templates()[12].source, {})));
  CallGrammar wanted;
  wanted.tools = tools();
  wanted.control_tokens = {"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>"};
  wanted.end_tokens = {"<|call|>", "<|return|>"};
  wanted.opening = "<|start|>assistant";
  const Vocabulary vocabulary(wanted.control_tokens);
  const auto cache = std::make_shared<MaskCache>(ok(make_call_grammar(form, wanted)), vocabulary.tokens);
  const auto accepts = [&](std::initializer_list<std::string_view> parts) {
    Constraint text(cache);
    for (const std::string_view part : parts) {
      const auto control = std::ranges::find(vocabulary.control, part);
      if (control != vocabulary.control.end()) {
        if (!text.accept(static_cast<int32_t>(257 + (control - vocabulary.control.begin()))).ok()) return false;
        continue;
      }
      for (const char c : part)
        if (!text.accept(static_cast<uint8_t>(c)).ok()) return false;
    }
    return text.must_end();
  };
  CHECK(accepts({"<|channel|>", "analysis", "<|message|>", "Well, <|x|>", "<|end|>", "<|start|>", "assistant", "<|channel|>",
                 "commentary to=functions.now ", "<|constrain|>", "json", "<|message|>", "{}"}));
  CHECK(accepts({" to=functions.now", "<|channel|>", "commentary json", "<|message|>", "{}"}));
  CHECK_FALSE(accepts({"<|channel|>", "final", "<|message|>", "{}"}));
  // One that ends texts before the arguments leaves nothing to write.
  wanted.end_tokens = {"<|message|>"};
  CHECK(make_call_grammar(form, wanted).status().code() == StatusCode::kUnsupported);
}

TEST_CASE("reasoning before calls is free, as far as the prompt leaves it open") {
  const AnswerForm form = AnswerForm::of(*ok(ChatTemplate::create(test::families()[0].source, {})));
  CallGrammar wanted;
  wanted.tools = tools();
  wanted.name = "now";
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const auto matches = [&](const std::string& text) {
    return grammar::testing::Matcher(ok(make_call_grammar(form, wanted))).matches(text);
  };
  CHECK(matches(call));
  CHECK(matches("<think>\nLet me </thin see {.\n</think>\n\n" + call));
  CHECK_FALSE(matches("Let me see. " + call));
  CHECK_FALSE(matches("<think>a</think>b</think>" + call));
  CHECK_FALSE(matches(call + call));
  wanted.may_reason = false;
  CHECK_FALSE(matches("<think>a</think>" + call));
  CHECK(matches("\n" + call));
  wanted.opening = "<think>";
  CHECK(matches("a</think>" + call));
  CHECK_FALSE(matches(call));
  wanted.opening = "<tool_call>";
  CHECK(matches(call.substr(11)));
  wanted.name.clear();
  CHECK(matches(call.substr(11) + "\n" + call));
}

TEST_CASE("what cannot be called is refused by name") {
  const AnswerForm form = AnswerForm::of(*ok(ChatTemplate::create(test::families()[6].source, {})));
  const auto refusal = [&](const AnswerForm& of, const char* given) {
    CallGrammar wanted;
    wanted.tools = Json::parse(given);
    return make_call_grammar(of, wanted).status().to_string();
  };
  const auto has = [](const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; };
  CHECK(has(refusal(AnswerForm(), R"([{"name": "f"}])"), "the chat template writes no calls"));
  CHECK(has(refusal(form, R"([{"name": "f<g"}])"), "tool 'f<g'"));
  CHECK(has(refusal(form, R"([{"name": "f", "parameters": {"type": "array"}}])"), "tool 'f': its parameters are of type"));
  CHECK(has(refusal(form, R"([{"name": "f", "parameters": {"properties": {"a>b": {}}, "required": ["a>b"]}}])"), "'a>b'"));
  CHECK(has(refusal(form, R"([{"name": "f", "parameters": {"properties": {"a": {"if": true}}}}])"), "tool 'f'"));
  CHECK(has(refusal(form, R"([{"name": "f", "parameters": {"properties": {"a": false}, "required": ["a"]}}])"), "tool 'f'"));
  CHECK(has(refusal(form, R"([{"type": "function"}])"), "wanted an object with a name"));
}

}  // namespace tessera
