// Texts that a grammar limits, through C: reasoning before them, stops within them, and texts that were cut.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "c_api.h"
#include "engine_events.h"
#include "text/json.h"

using namespace capi_test;
using tessera::Json;

namespace {

using Sequence = Handle<tsr_sequence, tsr_sequence_free>;

const int64_t k1 = 1;
const std::string kSchema =
    R"({"type":"object","properties":{"a":{"type":"string","maxLength":7},"b":{"enum":["x","y"]}},)"
    R"("required":["a","b"]})";

// Random weights over the 256 bytes, and a template that opens reasoning unless it is told not to.
Model thinking_model() {
  Model model = bytes_model();
  ok(tsr_model_set_metadata(
      model.get(), "chat_template",
      "{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
      "{% endif %}{{ m.content }}{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>"
      "{% endfor %}\n{% endfor %}{% if add_generation_prompt %}assistant: <think>"
      "{% if enable_thinking is defined and not enable_thinking %}</think>{% endif %}{% endif %}"));
  return model;
}

struct Text {
  std::string text, reasoning;
  int32_t finish = TSR_FINISH_NONE;
  Json end;
};

// The rest of a request. Where it waits for logits, the bytes of `said` are what the model says.
Text collect(const Engine& from, int64_t request, std::string_view said = {}) {
  Text text;
  for (size_t at = 0; text.finish == TSR_FINISH_NONE;) {
    const tsr_event event = next(from);
    const Json details = capi_test::details(event);
    if (event.kind == TSR_EVENT_LOGITS) {
      std::vector<float> logits(256, 0);
      logits[static_cast<unsigned char>(said[std::min(at++, said.size() - 1)])] = 1000;
      ok(tsr_engine_answer(from.get(), request, 0, logits.data(), logits.size()));
    } else if (event.kind == TSR_EVENT_TOKEN) {
      text.text.append(event.text, event.text_size);
      if (details.contains("reasoning")) text.reasoning += details["reasoning"].get<std::string>();
    } else if (event.kind == TSR_EVENT_END) {
      text.finish = event.finish;
      text.end = details;
    }
  }
  return text;
}

Text ask(const Engine& it, std::string_view said, std::initializer_list<Setting> settings) {
  int64_t request = -1;
  ok(tsr_engine_submit_messages(it.get(), options(settings).get(), R"([{"role":"user","content":"Hi"}])",
                                TSR_TEXT_END, &request));
  return collect(it, request, said);
}

Text write(const Engine& it, std::initializer_list<Setting> settings) {
  int64_t request = -1;
  ok(tsr_engine_submit(it.get(), options(settings).get(), "x", TSR_TEXT_END, &request));
  return collect(it, request);
}

}  // namespace

TEST_CASE("engine: reasoning is free, and the grammar holds from the answer on") {
  const Runtime rt = runtime();
  const Model model = thinking_model();
  const Engine it = engine(rt, model);
  const std::string json = R"({"a":"<think>","b":"x"})";
  const std::string said = R"(so {"a": 1} or, "b")" "</think>\n\n" + json;
  const auto length = static_cast<int64_t>(said.size());
  for (const int64_t parses : {int64_t{1}, int64_t{0}}) {
    const Text text =
        ask(it, said, {{"json_schema", kSchema}, {"logits", k1}, {"max_tokens", length}, {"parse", parses}});
    CHECK(text.finish == TSR_FINISH_STOP);
    if (parses == 0) {
      CHECK(text.text == said);
      continue;
    }
    CHECK(text.text == json);
    CHECK(text.reasoning == R"(so {"a": 1} or, "b")");
    CHECK(text.end["message"]["content"] == json);
    CHECK(text.end["message"]["reasoning_content"] == text.reasoning);
  }
  // Turned off, there is none; and what the grammar limits is content, even where it looks like a call.
  const std::string off = R"({"enable_thinking":false})";
  const Text bare = ask(it, json, {{"json_schema", kSchema}, {"logits", k1}, {"variables", off}});
  CHECK(bare.end["message"] == Json({{"role", "assistant"}, {"content", json}}));
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)";
  const Text likeness = ask(it, "hm</think>" + call,
                            {{"regex", std::string("<tool_call>.*</tool_call>")},
                             {"logits", k1},
                             {"max_tokens", static_cast<int64_t>(call.size() + 10)}});
  CHECK(likeness.text.starts_with(call));
  CHECK_FALSE(likeness.end["message"].contains("tool_calls"));
  // Cut within its reasoning, it has no content.
  const Text cut = ask(it, said, {{"json_schema", kSchema}, {"logits", k1}, {"max_tokens", int64_t{5}}});
  CHECK(cut.finish == TSR_FINISH_LENGTH);
  CHECK(cut.reasoning == "so {\"");
  CHECK(cut.text.empty());
}

TEST_CASE("engine: stops count where a grammar is complete") {
  const Runtime rt = runtime();
  const Model model = thinking_model();
  const Engine it = engine(rt, model);
  for (int64_t seed = 0; seed < 4; ++seed)
    for (const auto& [key, value] : {std::pair("stop", R"([",","\"","}"])"), std::pair("stop_ids", "44,34,125")}) {
      const Text text = write(it, {{"json_schema", kSchema},
                                   {"seed", seed},
                                   {key, std::string(value)},
                                   {"max_tokens", int64_t{240}}});
      if (text.finish == TSR_FINISH_LENGTH) continue;  // white space without end
      CHECK(text.finish == TSR_FINISH_STOP);
      CHECK_MESSAGE(Json::accept(text.text), text.text);
    }
  const Text commas = write(it, {{"regex", std::string("[ab]{3},[cd]{3}")}, {"stop", std::string(R"([","])")}});
  CHECK(commas.text.size() == 7);
  // A stop text ends the text if the grammar allows an end, and is left out.
  const Text ended = write(it, {{"regex", std::string("[ab]{3}(,[cd]{3})?")}, {"stop", std::string(R"([","])")}});
  CHECK(ended.text.size() == 3);
  CHECK(ended.finish == TSR_FINISH_STOP);
}

TEST_CASE("engine: a text that was cut goes on in its grammar") {
  const Runtime rt = runtime();
  const Model model = thinking_model();
  const Engine it = engine(rt, model);
  const auto resume = [&](const Sequence& sequence, const std::string& schema, std::vector<int32_t> more) {
    int64_t request = -1;
    ok(tsr_engine_submit_sequence(
        it.get(), options({{"json_schema", schema}, {"seed", k1}, {"max_tokens", int64_t{200}}, {"keep", k1}}).get(),
        sequence.get(), more.data(), more.size(), &request));
    Text text = collect(it, request);
    tsr_sequence* kept = nullptr;
    ok(tsr_engine_take_sequence(it.get(), request, 0, &kept));
    return std::pair(text.text, Sequence(kept));
  };
  const std::string schema = R"({"type":"array","items":{"enum":["x","y"]},"minItems":3,"maxItems":3})";
  int64_t request = -1;
  const Options few =
      options({{"json_schema", schema}, {"seed", k1}, {"max_tokens", int64_t{5}}, {"keep", k1}});
  ok(tsr_engine_submit(it.get(), few.get(), "x", TSR_TEXT_END, &request));
  const std::string begun = collect(it, request).text;
  tsr_sequence* kept = nullptr;
  ok(tsr_engine_take_sequence(it.get(), request, 0, &kept));
  const Sequence sequence(kept);
  CHECK_FALSE(Json::accept(begun));
  const auto [rest, whole] = resume(sequence, schema, {});
  CHECK_MESSAGE(Json::accept(begun + rest), begun << rest);
  CHECK(begun + rest == write(it, {{"json_schema", schema}, {"seed", k1}, {"max_tokens", int64_t{200}}}).text);
  // A text that is whole, other tokens and another grammar begin a text of their own.
  CHECK(Json::accept(resume(whole, schema, {}).first));
  CHECK(Json::accept(resume(sequence, schema, {'x'}).first));
  CHECK(Json::accept(resume(sequence, R"({"enum":["z"]})", {}).first));
}
