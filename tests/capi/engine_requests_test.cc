// Engines through C: events of many requests, texts, stops, grammars, log probabilities, the caller's logits, cancelling.
#include <poll.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "c_api.h"
#include "engine_events.h"
#include "text/grammar/source_text.h"
#include "text/json.h"

using namespace capi_test;
using tessera::Json;

namespace {

struct Text {
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<Json> details;  // of tokens
  int32_t finish = TSR_FINISH_NONE;
  Json end, prompt = Json::array();
};
using Texts = std::map<std::pair<int64_t, int32_t>, Text>;

// All events until nothing is in progress.
Texts collect(const Engine& from) {
  Texts texts;
  for (;;) {
    const tsr_event event = next(from);
    if (event.kind == TSR_EVENT_PENDING) return texts;
    Text& text = texts[{event.request, event.index}];
    REQUIRE(text.finish == TSR_FINISH_NONE);
    if (event.kind == TSR_EVENT_TOKEN) {
      text.text.append(event.text, event.text_size);
      const std::string_view text_of_it(event.text, event.text_size);
      CHECK(tessera::grammar::valid_utf8(text_of_it) == text_of_it.size());
      if (event.token >= 0) text.tokens.push_back(event.token), text.details.push_back(details(event));
    } else if (event.kind == TSR_EVENT_PROMPT) {
      const Json fields = details(event);
      for (const Json& token : fields["tokens"]) text.prompt.push_back(token);
    } else if (event.kind == TSR_EVENT_END) {
      text.finish = event.finish;
      text.end = details(event);
    }
  }
}

int64_t submit(const Engine& to, const char* prompt, std::initializer_list<Setting> settings) {
  int64_t request = -1;
  ok(tsr_engine_submit(to.get(), options(settings).get(), prompt, TSR_TEXT_END, &request));
  return request;
}

Error refusal(const Engine& to, const char* prompt, std::initializer_list<Setting> settings) {
  int64_t request = -1;
  const Error error =
      take(tsr_engine_submit(to.get(), options(settings).get(), prompt, TSR_TEXT_END, &request));
  CHECK(request == -1);
  return error;
}

const int64_t k1 = 1;

}  // namespace

TEST_CASE("engine: texts of many requests come in one queue, as each comes alone") {
  const Runtime rt = runtime();
  const Model model = bytes_model();
  const Engine many = engine(rt, model), one = engine(rt, model);
  std::vector<std::string> prompts = {"a", "Once upon", "the quick brown fox", "\xce\xbb",
                                      "Once upon a time"};
  for (size_t i = 0; i < prompts.size(); ++i)
    CHECK(submit(many, prompts[i].c_str(), {{"max_tokens", int64_t{20}}, {"seed", int64_t(i)}}) ==
          int64_t(i));
  const Texts batched = collect(many);
  REQUIRE(batched.size() == prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    submit(one, prompts[i].c_str(), {{"max_tokens", int64_t{20}}, {"seed", int64_t(i)}});
    const Text alone = collect(one).begin()->second;
    const Text& among = batched.at({int64_t(i), 0});
    CHECK(among.tokens == alone.tokens);
    CHECK(among.text == alone.text);
    CHECK(among.finish == TSR_FINISH_LENGTH);
    CHECK(among.end["tokens"] == 20);
    CHECK(among.end["seed"] == i);
  }
  const Json report = Json::parse(text([&](tsr_text** out) { return tsr_engine_report(many.get(), out); }));
  CHECK(report["requests"] == 5);
  CHECK(report["generated"] == 100);
  CHECK(report["running"] == 0);
  CHECK(report["batch_invariant"] == true);
  CHECK(report["free_cache_tokens"] == report["cache_tokens"]);
}

TEST_CASE("engine: several texts of a request, and the likeliest of several") {
  const Runtime rt = runtime();
  const Model model = bytes_model();
  const Engine it = engine(rt, model);
  submit(it, "ab", {{"max_tokens", int64_t{6}}, {"seed", k1}, {"n", int64_t{4}}, {"logprobs", int64_t{0}}});
  const Texts all = collect(it);
  REQUIRE(all.size() == 4);
  submit(it, "ab", {{"max_tokens", int64_t{6}}, {"seed", k1}, {"n", int64_t{2}}, {"best_of", int64_t{4}}});
  const Texts best = collect(it);
  REQUIRE(best.size() == 2);
  std::vector<std::pair<double, std::vector<int32_t>>> ranked;
  for (const auto& [key, text] : all) ranked.emplace_back(-text.end["logprob"].get<double>() / 6, text.tokens);
  std::ranges::stable_sort(ranked, {}, &decltype(ranked)::value_type::first);
  CHECK(ranked[0].second != ranked[1].second);
  CHECK(best.at({1, 0}).tokens == ranked[0].second);
  CHECK(best.at({1, 1}).tokens == ranked[1].second);
}

TEST_CASE("engine: the token that ends a text has its log probability in the end, and counts in no mean") {
  const Runtime rt = runtime();
  const Model model = bytes_model();
  const Engine it = engine(rt, model);
  std::string ids;
  for (int id = 80; id < 200; ++id) ids += (ids.empty() ? "" : ",") + std::to_string(id);
  const auto draw = [&](int64_t seed, int64_t n, int64_t best_of) {
    submit(it, "ab", {{"max_tokens", int64_t{4}}, {"temperature", int64_t{1}}, {"seed", seed}, {"n", n},
                      {"best_of", best_of}, {"logprobs", int64_t{2}}, {"stop_ids", ids}});
    std::vector<Text> texts;
    for (auto& [key, text] : collect(it)) texts.push_back(std::move(text));
    return texts;
  };
  bool has_empty = false, has_stopped = false;
  for (int64_t seed = 0; seed < 4; ++seed) {
    std::vector<std::pair<double, std::vector<int32_t>>> ranked;
    for (const Text& text : draw(seed, 6, 6)) {
      double sum = 0;
      for (const Json& token : text.details) sum += token["logprob"].get<double>();
      CHECK(std::abs(text.end["logprob"].get<double>() - sum) < 1e-9);
      CHECK(text.end["tokens"] == text.tokens.size());
      ranked.emplace_back(text.tokens.empty() ? HUGE_VAL : -sum / double(text.tokens.size()), text.tokens);
      has_empty |= text.tokens.empty();
      CHECK((text.finish == TSR_FINISH_STOP) == text.end.contains("stop_logprob"));
      if (text.finish != TSR_FINISH_STOP) continue;
      has_stopped = true;
      CHECK(text.end["stop_token"].get<int>() >= 80);
      CHECK(text.end["stop_logprob"].get<double>() < 0);
      CHECK(text.end["stop_top"].size() == 2);
    }
    std::ranges::stable_sort(ranked, {}, &decltype(ranked)::value_type::first);
    const std::vector<Text> best = draw(seed, 2, 6);
    REQUIRE(best.size() == 2);
    for (size_t i = 0; i < 2; ++i) CHECK(best[i].tokens == ranked[i].second);
  }
  CHECK(has_empty);
  CHECK(has_stopped);
}

TEST_CASE("engine: limits near the ends of 64 bits are those of the context") {
  const Runtime rt = runtime();
  const Model model = bytes_model();
  const Engine it = engine(rt, model, {{"context", int64_t{16}}});
  for (const int64_t most : {int64_t{0}, int64_t{1} << 31, int64_t{1} << 53, INT64_MAX - 1, INT64_MAX}) {
    submit(it, "abc", {{"max_tokens", most}, {"seed", int64_t{1}}});
    const Text text = collect(it).begin()->second;
    CHECK(text.end["tokens"].get<int64_t>() + text.end["prompt_tokens"].get<int64_t>() == 16);
    CHECK(text.finish == TSR_FINISH_LENGTH);
  }
}

TEST_CASE("engine: log probabilities of the text and of the prompt agree") {
  const Runtime rt = runtime();
  const Model model = bytes_model();
  const Engine it = engine(rt, model, {{"step_tokens", int64_t{100}}});
  std::string prompt;
  for (int i = 0; i < 90; ++i) prompt += static_cast<char>('a' + i * 7 % 26);
  submit(it, prompt.c_str(),
         {{"max_tokens", int64_t{5}}, {"temperature", int64_t{0}}, {"logprobs", int64_t{3}}});
  const Text made = collect(it).begin()->second;
  REQUIRE(made.details.size() == 5);
  for (size_t i = 0; i < 5; ++i) {
    REQUIRE(made.details[i]["top"].size() == 3);
    CHECK(made.details[i]["top"][0]["token"] == made.tokens[i]);  // temperature 0
    CHECK(made.details[i]["top"][0]["logprob"] == made.details[i]["logprob"]);
  }
  tsr_tokenizer* tokenizer = nullptr;
  ok(tsr_model_tokenizer(model.get(), &tokenizer));
  const Tokenizer owner(tokenizer);
  std::vector<int32_t> ids(200);
  size_t count = 0;
  ok(tsr_tokenizer_encode(tokenizer, prompt.c_str(), TSR_TEXT_END, 0, ids.data(), ids.size(), &count));
  ids.resize(count);
  ids.insert(ids.end(), made.tokens.begin(), made.tokens.end());
  int64_t request = -1;
  ok(tsr_engine_submit_tokens(it.get(), options({{"max_tokens", k1}, {"prompt_logprobs", int64_t{2}}}).get(),
                              ids.data(), ids.size(), &request));
  const Text scored = collect(it).begin()->second;
  REQUIRE(scored.prompt.size() == ids.size());
  CHECK(scored.prompt[0]["logprob"].is_null());
  for (size_t i = 0; i < ids.size(); ++i) CHECK(scored.prompt[i]["token"] == ids[i]);
  for (size_t i = 0; i < 5; ++i) CHECK(scored.prompt[count + i]["logprob"] == made.details[i]["logprob"]);
}

TEST_CASE("engine: a grammar holds, also next to a request without one") {
  const Runtime rt = runtime();
  const Model model = bytes_model();
  const Engine it = engine(rt, model);
  const std::string schema =
      R"({"type":"object","properties":{"age":{"type":"integer","minimum":0,"maximum":99},"ok":{"type":"boolean"}},)"
      R"("required":["age","ok"]})";
  for (int64_t seed = 0; seed < 6; ++seed)
    submit(it, "x", {{"json_schema", schema}, {"seed", seed}, {"max_tokens", int64_t{200}}});
  submit(it, "x", {{"max_tokens", int64_t{10}}, {"seed", k1}});
  submit(it, "x", {{"choices", std::string(R"(["yes","no"])")}, {"seed", k1}});
  submit(it, "x", {{"regex", std::string("[0-9]{3}-[a-f]{2}")}, {"seed", k1}});
  submit(it, "x",
         {{"grammar", std::string(R"(root ::= "p" [qr]+ "s")")}, {"seed", k1}, {"max_tokens", int64_t{100}}});
  const Texts texts = collect(it);
  for (int64_t i = 0; i < 6; ++i) {
    const Text& text = texts.at({i, 0});
    INFO(text.text);
    if (text.finish == TSR_FINISH_LENGTH) continue;  // white space without end
    REQUIRE(text.finish == TSR_FINISH_STOP);
    const Json value = Json::parse(text.text);
    CHECK(value["age"].get<int>() >= 0);
    CHECK(value["ok"].is_boolean());
  }
  CHECK(texts.at({6, 0}).tokens.size() == 10);
  const std::string answer = texts.at({7, 0}).text;
  CHECK((answer == "yes" || answer == "no"));
  CHECK(texts.at({8, 0}).text.size() == 6);
  CHECK(texts.at({9, 0}).text.front() == 'p');
  CHECK(refusal(it, "x", {{"json_schema", std::string("{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}")}})
            .code == TSR_INVALID_ARGUMENT);
  CHECK(refusal(it, "x", {{"regex", std::string("a")}, {"json", k1}}).message.find("wanted one of") !=
        std::string::npos);
}

TEST_CASE("engine: stop texts, stop ids, and what is refused by name") {
  const Runtime rt = runtime();
  const Model model = bytes_model();
  const Engine it = engine(rt, model);
  submit(it, "hello", {{"max_tokens", int64_t{40}}, {"seed", int64_t{5}}});
  const Text whole = collect(it).begin()->second;
  REQUIRE(whole.tokens.size() == 40);
  const std::string id = std::to_string(whole.tokens[7]);
  submit(it, "hello", {{"max_tokens", int64_t{40}}, {"seed", int64_t{5}}, {"stop_ids", id}});
  const Text stopped = collect(it).begin()->second;
  CHECK(stopped.finish == TSR_FINISH_STOP);
  CHECK(stopped.end["stop_token"] == whole.tokens[7]);
  CHECK(stopped.tokens.size() <= 7);
  CHECK(
      whole.text.starts_with(stopped.text.substr(0, stopped.text.size() > 3 ? stopped.text.size() - 3 : 0)));
  CHECK(refusal(it, "a", {{"max_tokns", k1}}).message.find("nearest: max_tokens") != std::string::npos);
  CHECK(refusal(it, "a", {{"echo", k1}}).message.find("'echo' is a generator's") != std::string::npos);
  CHECK(refusal(it, std::string(300, 'a').c_str(), {}).message.find("300") != std::string::npos);
  CHECK(refusal(it, "a", {{"temperature", -1.0}}).code == TSR_INVALID_ARGUMENT);
  int64_t request = -1;
  const int32_t outside = 256;
  CHECK(
      take(tsr_engine_submit_tokens(it.get(), nullptr, &outside, 1, &request)).message.find("token id 256") !=
      std::string::npos);
  CHECK(take(tsr_engine_submit_tokens(it.get(), nullptr, &outside, 0, &request)).code ==
        TSR_INVALID_ARGUMENT);
  CHECK(collect(it).empty());
}

TEST_CASE("engine: the caller changes logits, others go on") {
  const Runtime rt = runtime();
  const Model model = bytes_model();
  const Engine it = engine(rt, model);
  submit(it, "ab", {{"max_tokens", int64_t{4}}, {"logits", k1}, {"temperature", int64_t{0}}});
  submit(it, "ab", {{"max_tokens", int64_t{4}}, {"temperature", int64_t{0}}});
  std::vector<int32_t> forced, free;
  int32_t wanted = 65;
  int ends = 0;
  while (ends < 2) {
    const tsr_event event = next(it);
    REQUIRE(event.kind != TSR_EVENT_PENDING);
    if (event.kind == TSR_EVENT_END) ++ends;
    if (event.kind == TSR_EVENT_TOKEN && event.token >= 0)
      (event.request == 0 ? forced : free).push_back(event.token);
    if (event.kind != TSR_EVENT_LOGITS) continue;
    CHECK(event.request == 0);
    size_t count = 0;
    ok(tsr_engine_logits(it.get(), 0, 0, nullptr, 0, &count));
    REQUIRE(count == 256);
    std::vector<float> logits(count);
    ok(tsr_engine_logits(it.get(), 0, 0, logits.data(), count, &count));
    CHECK(take(tsr_engine_answer(it.get(), 0, 0, logits.data(), 7)).message.find("wanted 256") !=
          std::string::npos);
    CHECK(take(tsr_engine_answer(it.get(), 1, 0, nullptr, 0)).code == TSR_NOT_FOUND);
    if (forced.size() == 3) {  // as they are
      ok(tsr_engine_answer(it.get(), 0, 0, nullptr, 0));
      continue;
    }
    logits[static_cast<size_t>(wanted++)] = 1000;
    ok(tsr_engine_answer(it.get(), 0, 0, logits.data(), count));
  }
  REQUIRE(forced.size() == 4);
  CHECK(forced[0] == 65);
  CHECK(forced[2] == 67);
  CHECK(free.size() == 4);
}

TEST_CASE("engine: cancelling, descriptors, and an engine freed while it works") {
  const Runtime rt = runtime();
  const Model model = bytes_model();
  const Engine it = engine(rt, model, {{"sequences", int64_t{2}}});
  int32_t descriptor = -1;
  ok(tsr_engine_descriptor(it.get(), &descriptor));
  const auto readable = [&](int wait_ms) {
    pollfd poll_for{descriptor, POLLIN, 0};
    return ::poll(&poll_for, 1, wait_ms) == 1;
  };
  CHECK(!readable(0));
  CHECK(next(it, 0).kind == TSR_EVENT_PENDING);
  CHECK(next(it, -1).kind == TSR_EVENT_PENDING);  // nothing in progress
  std::vector<int64_t> requests;
  for (int i = 0; i < 20; ++i)
    requests.push_back(submit(it, "abc", {{"max_tokens", int64_t{100}}, {"ignore_eos", k1}}));
  CHECK(readable(10000));
  std::thread other([&] {
    for (size_t i = 0; i < requests.size(); i += 2) tsr_engine_cancel(it.get(), requests[i]);
    tsr_engine_cancel(it.get(), 1000);
  });
  const Texts texts = collect(it);
  other.join();
  REQUIRE(texts.size() == 20);
  for (size_t i = 0; i < requests.size(); ++i) {
    const Text& text = texts.at({requests[i], 0});
    if (i % 2 == 1) CHECK(text.finish == TSR_FINISH_LENGTH);
    CHECK(text.finish != TSR_FINISH_NONE);
  }
  CHECK(!readable(0));
  submit(it, "abc", {{"max_tokens", int64_t{200}}});  // and freed
}

TEST_CASE("engine: a conversation by the model's template") {
  const Runtime rt = runtime();
  const Model model = bytes_model();
  const Engine bare = engine(rt, model);
  const char* messages = R"([{"role":"user","content":"Hi"}])";
  int64_t request = -1;
  CHECK(take(tsr_engine_submit_messages(bare.get(), nullptr, messages, TSR_TEXT_END, &request))
            .message.find("no chat template") != std::string::npos);
  ok(tsr_model_set_metadata(model.get(), "chat_template",
                            "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                            "{% if add_generation_prompt %}assistant:{% endif %}"));
  const Engine it = engine(rt, model);
  const Options chosen = options({{"max_tokens", int64_t{8}}, {"temperature", int64_t{0}}});
  ok(tsr_engine_submit_messages(it.get(), chosen.get(), messages, TSR_TEXT_END, &request));
  const Text answer = collect(it).begin()->second;
  submit(it, "user: Hi\nassistant:", {{"max_tokens", int64_t{8}}, {"temperature", int64_t{0}}});
  CHECK(collect(it).begin()->second.tokens == answer.tokens);
  CHECK(answer.end["message"]["role"] == "assistant");
  CHECK(answer.end["message"]["content"] == answer.text);
}

TEST_CASE("engine: answers are taken apart: reasoning, content, calls") {
  const Runtime rt = runtime();
  const Model model = bytes_model();
  ok(tsr_model_set_metadata(
      model.get(), "chat_template",
      "{% for m in messages %}{{ m.role }}: {% if m.reasoning_content %}<think>{{ m.reasoning_content "
      "}}</think>"
      "{% endif %}{{ m.content }}{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>"
      "{% endfor %}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"));
  const Engine it = engine(rt, model);
  const char* messages = R"([{"role":"user","content":"Hi"}])";
  const std::string said =
      R"(<think>hm</think>Well<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>)";
  // The model says what the caller's logits say.
  const auto say = [&](std::initializer_list<Setting> settings) {
    int64_t request = -1;
    ok(tsr_engine_submit_messages(it.get(), options(settings).get(), messages, TSR_TEXT_END, &request));
    Text text;
    std::string reasoning;
    for (size_t at = 0; text.finish == TSR_FINISH_NONE;) {
      const tsr_event event = next(it);
      if (event.kind == TSR_EVENT_LOGITS) {
        std::vector<float> logits(256, 0);
        logits[static_cast<unsigned char>(said[at++])] = 1000;
        ok(tsr_engine_answer(it.get(), request, 0, logits.data(), logits.size()));
      } else if (event.kind == TSR_EVENT_TOKEN) {
        text.text.append(event.text, event.text_size);
        const Json fields = details(event);
        if (fields.contains("reasoning")) reasoning += fields["reasoning"].get<std::string>();
      } else if (event.kind == TSR_EVENT_END) {
        text.finish = event.finish;
        text.end = details(event);
      }
    }
    return std::pair(text, reasoning);
  };
  const auto size = static_cast<int64_t>(said.size());
  const auto [text, reasoning] = say({{"max_tokens", size}, {"logits", k1}});
  CHECK(text.text == "Well");
  CHECK(reasoning == "hm");
  CHECK(text.end["message"]["content"] == "Well");
  CHECK(text.end["message"]["reasoning_content"] == "hm");
  CHECK(text.end["message"]["tool_calls"][0]["function"] ==
        Json::parse(R"({"name":"add","arguments":{"a":1}})"));
  const auto [whole, none] = say({{"max_tokens", size}, {"logits", k1}, {"parse", int64_t{0}}});
  CHECK(whole.text == said);
  CHECK(none.empty());
  CHECK_FALSE(whole.end.contains("message"));
}
