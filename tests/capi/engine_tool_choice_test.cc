// Option tool_choice through C: calls that are required, named or not wanted, with marks that are control tokens.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "c_api.h"
#include "control_tokenizer.h"
#include "engine_events.h"
#include "text/json.h"

using namespace capi_test;
using tessera::Json;

namespace {

const int64_t k1 = 1;
constexpr int32_t kFirstByte = 3, kThink = 259, kEnd = 263;  // then </think>, <tool_call>, </tool_call>
const char* const kControl[] = {"<think>", "</think>", "<tool_call>", "</tool_call>", "<|end|>"};
const std::string kTools = R"([{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":
    {"a":{"type":"integer","minimum":0,"maximum":9},"b":{"enum":["x","y"]}},"required":["a"]}}},
    {"type":"function","function":{"name":"now"}}])";

// Random weights, and a template that shows tools and calls.
Model calling_model() {
  tsr_model* made = nullptr;
  ok(tsr_model_new("llama:L=2,C=32,H=4,KV=2,F=48,V=264,T=1024", options({{"seed", int64_t{3}}}).get(), &made));
  Model model(made);
  ok(tsr_model_set_tokenizer(made, control_tokenizer(kControl).get()));
  ok(tsr_model_set_metadata(
      made, "chat_template",
      "{% if tools %}{{ tools | tojson }}\n{% endif %}{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}<think>"
      "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% for c in m.tool_calls %}<tool_call>\n"
      "{{ c.function | tojson }}\n</tool_call>{% endfor %}<|end|>{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}"));
  return model;
}

struct Said {
  std::string text, reasoning;
  std::vector<int32_t> tokens;
  int32_t finish = TSR_FINISH_NONE;
  Json end;
};

// The answer to a question. With option logits the model wants to say these tokens.
Said ask(const Engine& it, std::initializer_list<Setting> settings, const std::vector<int32_t>& wanted = {}) {
  int64_t request = -1;
  ok(tsr_engine_submit_messages(it.get(), options(settings).get(), R"([{"role":"user","content":"Hi"}])", TSR_TEXT_END,
                                &request));
  Said said;
  for (size_t at = 0; said.finish == TSR_FINISH_NONE;) {
    const tsr_event event = next(it);
    const Json fields = details(event);
    if (event.kind == TSR_EVENT_LOGITS) {
      std::vector<float> logits(264, 0);
      if (at < wanted.size()) logits[static_cast<size_t>(wanted[at])] = 1000;
      ++at;
      ok(tsr_engine_answer(it.get(), request, 0, logits.data(), logits.size()));
    } else if (event.kind == TSR_EVENT_TOKEN) {
      said.text.append(event.text, event.text_size);
      if (event.token >= 0) said.tokens.push_back(event.token);
      if (fields.contains("reasoning")) said.reasoning += fields["reasoning"].get<std::string>();
    } else if (event.kind == TSR_EVENT_END) {
      said.finish = event.finish;
      said.end = fields;
    }
  }
  return said;
}

std::vector<int32_t> tokens_of(std::initializer_list<std::string_view> parts) {
  std::vector<int32_t> tokens;
  for (const std::string_view part : parts) {
    const auto control = std::ranges::find(kControl, part);
    if (control != std::end(kControl)) {
      tokens.push_back(kThink + static_cast<int32_t>(control - kControl));
      continue;
    }
    for (const char c : part) tokens.push_back(kFirstByte + static_cast<uint8_t>(c));
  }
  return tokens;
}

bool is_valid(const Json& function) {
  const Json& given = function["arguments"];
  if (function["name"] == "now") return given == Json::object();
  if (function["name"] != "add" || !given.contains("a") || !given["a"].is_number_integer()) return false;
  if (given["a"] < 0 || given["a"] > 9) return false;
  return given.size() == 1 || (given.size() == 2 && (given.value("b", Json()) == "x" || given.value("b", Json()) == "y"));
}

}  // namespace

TEST_CASE("engine: a call that is required or named is written, and is valid") {
  const Runtime rt = runtime();
  const Model model = calling_model();
  const Engine it = engine(rt, model);
  int whole = 0;
  for (const std::string choice : {"required", "add", "now"})
    for (int64_t seed = 0; seed < 6; ++seed) {
      CAPTURE(choice);
      CAPTURE(seed);
      // Without reasoning, which may be of any length: the bias forbids its token.
      const Said said = ask(it, {{"tools", kTools},
                                 {"tool_choice", choice},
                                 {"seed", seed},
                                 {"logit_bias", std::string(R"({"259":-100})")},
                                 {"max_tokens", int64_t{300}}});
      CHECK(said.text.empty());
      CHECK(said.end["message"]["content"] == "");
      // A text that a limit ends is cut within a call, or between two.
      const auto opened = std::ranges::count(said.tokens, kThink + 2);
      const Json written = said.end["message"].value("tool_calls", Json::array());
      CHECK(said.end["message"].contains("cut_call") == (opened > std::ssize(written)));
      if (said.finish == TSR_FINISH_LENGTH) continue;
      ++whole;
      CHECK(said.finish == TSR_FINISH_STOP);
      REQUIRE(said.end["message"].contains("tool_calls"));
      const Json& calls = said.end["message"]["tool_calls"];
      if (choice != "required") CHECK(calls.size() == 1);
      CHECK(std::ranges::count(said.tokens, kThink + 2) == std::ssize(calls));
      for (const Json& call : calls) {
        CHECK_MESSAGE(is_valid(call["function"]), call.dump());
        if (choice != "required") CHECK(call["function"]["name"] == choice);
        CHECK_FALSE(call["id"].get<std::string>().empty());
      }
    }
  CHECK(whole >= 9);
}

TEST_CASE("engine: reasoning before an obliged call is free, and content is not") {
  const Runtime rt = runtime();
  const Model model = calling_model();
  const Engine it = engine(rt, model);
  const auto wanted = tokens_of({"<think>", "a <b> {", "</think>", "\n", "<tool_call>", R"({"name":"add","arguments":{"a":7}})",
                                 "</tool_call>"});
  const Said said =
      ask(it, {{"tools", kTools}, {"tool_choice", std::string("add")}, {"logits", k1}, {"max_tokens", int64_t{200}}}, wanted);
  CHECK(said.finish == TSR_FINISH_STOP);
  CHECK(said.tokens == wanted);
  CHECK(said.reasoning == "a <b> {");
  CHECK(said.text.empty());
  CHECK(said.end["message"]["tool_calls"][0]["function"] == Json::parse(R"({"name":"add","arguments":{"a":7}})"));
  // The model would rather speak: the first token is none of content, nor the letters of a mark.
  for (const char* first : {"N", "<"}) {
    const Said other = ask(it, {{"tools", kTools}, {"tool_choice", std::string("now")}, {"logits", k1}, {"max_tokens", k1}},
                           {kFirstByte + first[0]});
    CHECK(other.tokens.size() == 1);
    CHECK(other.tokens[0] != kFirstByte + first[0]);
  }
  // Several calls are possible where they are required.
  const auto two = tokens_of({"<tool_call>", R"({"name":"now","arguments":{}})", "</tool_call>", "<tool_call>",
                              R"({"name":"add","arguments":{"a":1}})", "</tool_call>", "<|end|>"});
  const Said both =
      ask(it, {{"tools", kTools}, {"tool_choice", std::string("required")}, {"logits", k1}, {"max_tokens", int64_t{200}}}, two);
  CHECK(both.finish == TSR_FINISH_STOP);
  CHECK(both.end["stop_token"] == kEnd);
  CHECK(both.end["message"]["tool_calls"].size() == 2);
}

TEST_CASE("engine: an answer that a limit cuts within a call has its beginning, and counts its reasoning") {
  const Runtime rt = runtime();
  const Model model = calling_model();
  const Engine it = engine(rt, model);
  const std::string arguments = R"({"a":7,"b":"x"})", call = R"({"name":"add","arguments":)" + arguments + "}";
  const auto reasoning = tokens_of({"<think>", "a \xc3\xa9 {", "</think>"});
  const auto wanted = tokens_of({"<think>", "a \xc3\xa9 {", "</think>", "I look.", "<tool_call>", R"({"name":"now","arguments":{}})",
                                 "</tool_call>", "\n", "<tool_call>", call, "</tool_call>"});
  const auto place = [&](std::initializer_list<std::string_view> parts) { return tokens_of(parts).size(); };
  const size_t first = reasoning.size() + place({"I look."}), second = wanted.size() - place({"<tool_call>", call, "</tool_call>"});
  const size_t most_first = first + place({"<tool_call>", R"({"name":"now","arguments":{}})"});
  for (size_t length = 1; length <= wanted.size(); ++length) {
    CAPTURE(length);
    const Said said =
        ask(it, {{"tools", kTools}, {"logits", k1}, {"max_tokens", static_cast<int64_t>(length)}}, wanted);
    CHECK(said.finish == TSR_FINISH_LENGTH);
    CHECK(said.end["tokens"] == length);
    CHECK(said.end["reasoning_tokens"] == std::min(length, reasoning.size()));
    const Json& message = said.end["message"];
    CHECK(message["content"] == said.text);
    CHECK(std::string_view("I look.").starts_with(said.text));
    const bool is_cut = (length > first && length < most_first) || (length > second && length + 1 < wanted.size());
    REQUIRE(message.contains("cut_call") == is_cut);
    CHECK(message.value("tool_calls", Json::array()).size() ==
          (length >= most_first ? 1u : 0u) + (length + 1 >= wanted.size() ? 1u : 0u));
    if (!is_cut) continue;
    CHECK_FALSE(message["cut_call"]["id"].get<std::string>().empty());
    const std::string text = message["cut_call"]["arguments"];
    if (length < second) continue;
    const size_t bytes = length - second - 1, name = std::string_view(R"({"name":"add")").size();
    CHECK(message["cut_call"]["name"] == (bytes < name ? "" : "add"));
    const size_t begin = call.size() - arguments.size() - 1;
    CHECK(text == arguments.substr(0, bytes > begin ? bytes - begin : 0));
  }
  // Before an answer under a grammar.
  const Said limited = ask(it, {{"json", k1}, {"logits", k1}, {"max_tokens", int64_t{40}}},
                           tokens_of({"<think>", "hm", "</think>", "{}"}));
  CHECK(limited.end["reasoning_tokens"] == 4);
  CHECK(limited.end["message"]["content"] == "{}");
}

TEST_CASE("engine: without tools that the model sees, no text is a call") {
  const Runtime rt = runtime();
  const Model model = calling_model();
  const Engine it = engine(rt, model);
  const auto call = tokens_of({"<tool_call>", R"({"name":"now","arguments":{}})", "</tool_call>"});
  const auto ask_with = [&](const std::string& choice) {
    const auto length = static_cast<int64_t>(call.size());
    return ask(it, {{"tools", kTools}, {"tool_choice", choice}, {"logits", k1}, {"max_tokens", length}}, call);
  };
  const Said seen = ask_with("auto"), none = ask_with("none");
  CHECK(seen.end["message"]["tool_calls"].size() == 1);
  CHECK_FALSE(none.end["message"].contains("tool_calls"));
  CHECK(none.end["message"]["content"] == R"(<tool_call>{"name":"now","arguments":{}}</tool_call>)");
  CHECK(none.end["prompt_tokens"].get<int64_t>() < seen.end["prompt_tokens"].get<int64_t>());
}

TEST_CASE("engine: calls that cannot be obliged are refused by name") {
  const Runtime rt = runtime();
  const Model model = calling_model();
  const Engine it = engine(rt, model);
  const auto refusal = [&](std::initializer_list<Setting> settings) {
    int64_t request = -1;
    return take(tsr_engine_submit_messages(it.get(), options(settings).get(), R"([{"role":"user","content":"Hi"}])",
                                           TSR_TEXT_END, &request));
  };
  const auto has = [](const Error& error, std::string_view part) { return error.message.find(part) != std::string::npos; };
  const std::string required = "required";
  CHECK(has(refusal({{"tool_choice", required}}), "'tool_choice' is 'required', and there are no tools"));
  CHECK(has(refusal({{"tool_choice", required}, {"tools", std::string("[]")}}), "there are no tools"));
  CHECK(has(refusal({{"tool_choice", std::string("ad")}, {"tools", kTools}}), "name of a tool: add, now"));
  CHECK(has(refusal({{"tool_choice", required}, {"tools", kTools}, {"json", k1}}), "wanted one of them"));
  const std::string plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
  const Error mute = refusal({{"tool_choice", required}, {"tools", kTools}, {"template", plain}});
  CHECK(mute.code == TSR_UNSUPPORTED);
  CHECK(has(mute, "writes no calls of tools"));
  int64_t request = -1;
  CHECK(has(take(tsr_engine_submit(it.get(), options({{"tool_choice", required}}).get(), "x", TSR_TEXT_END, &request)),
            "tool_choice"));
  // Tools oblige to nothing.
  CHECK(ask(it, {{"tools", kTools}, {"max_tokens", k1}}).finish == TSR_FINISH_LENGTH);
}
