// Guesses by a draft model: they change no token, bring several a step where they are right, and pause where they do not pay.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "c_api.h"
#include "engine/serving/scheduler/draft_backoff.h"
#include "engine/serving/scheduler/draft_model.h"
#include "engine_events.h"
#include "graph/base/text.h"
#include "tests/capi/test_server.h"
#include "text/json.h"

using namespace capi_test;
using tessera::DraftBackoff;
using tessera::Json;
using tessera::ServingCore;
using tessera::ServingEvent;
using tessera::ServingRequest;
using tessera::ServingSettings;
using tessera::SharedModel;
using namespace tessera::serving_tests;

namespace {

constexpr const char* kOther = "llama:L=1,C=32,H=2,KV=1,F=32,V=96,T=256";

ServingSettings drafting(const ServingLayout& layout, std::shared_ptr<SharedModel> draft,
                         int64_t pages = 512) {
  ServingSettings settings = settings_of(layout, 8, pages);
  settings.speculates = settings.always_speculates = draft != nullptr;
  settings.draft = std::move(draft);
  return settings;
}

// Results of `count` requests, some of them cancelled midway; all with `temperature`.
std::map<int64_t, Tokens> serve(ServingCore& core, double temperature, bool cancels, int64_t count = 8) {
  std::map<int64_t, Tokens> given;
  std::vector<ServingEvent> events;
  std::vector<int64_t> numbers;  // of those that may be cancelled
  uint32_t seed = 11;
  int64_t first = -1;
  const auto step = [&] {
    const auto more = core.step(events);
    REQUIRE_MESSAGE(more.ok(), more.status().to_string());
    for (const ServingEvent& event : events) {
      if (event.kind == ServingEvent::Kind::kToken) given[event.request - first].push_back(event.token);
      if (event.kind == ServingEvent::Kind::kEnd) CHECK(event.finish != ServingEvent::Finish::kFailed);
    }
    events.clear();
    return *more;
  };
  for (int64_t i = 0; i < count; ++i) {
    const auto sampling = std::make_shared<tessera::SamplingSettings>();
    sampling->max_tokens = 40;
    sampling->temperature = temperature;
    ServingRequest request;
    request.prompt = random_tokens(seed, 3 + next(seed) % 50, 96);
    request.sampling = sampling;
    request.seed = static_cast<uint64_t>(i);
    const auto number = submit(core, request);
    REQUIRE_MESSAGE(number.ok(), number.status().to_string());
    if (first < 0) first = *number;
    numbers.push_back(*number);
    if (cancels) step();
  }
  for (int steps = 0; step(); ++steps) {
    REQUIRE(steps < 10000);
    if (cancels && steps % 8 == 7 && !numbers.empty()) {
      core.cancel(numbers.back(), events);
      numbers.pop_back();
      if (!numbers.empty()) numbers.pop_back();
    }
  }
  CHECK(core.is_idle());
  CHECK(core.counts().free_pages == core.counts().pages);
  return given;
}

// Texts that were cancelled earlier than others are compared as far as they go.
void check_alike(const std::map<int64_t, Tokens>& given, const std::map<int64_t, Tokens>& wanted) {
  for (const auto& [request, tokens] : wanted) {
    const auto other = given.find(request);
    if (other == given.end()) continue;
    const size_t common = std::min(tokens.size(), other->second.size());
    CHECK(first(tokens, common) == first(other->second, common));
  }
}

std::unique_ptr<ServingCore> core_of(const ServingSettings& settings) {
  auto runtime = tessera::Runtime::create({});
  REQUIRE(runtime.ok());
  auto core = ServingCore::create(*runtime, new_model(kServedModel, 0), settings);
  REQUIRE_MESSAGE(core.ok(), core.status().to_string());
  return std::move(*core);
}

Engine engine(const Runtime& rt, const Model& model, const Options& settings) {
  tsr_engine* made = nullptr;
  ok(tsr_engine_new(rt.get(), model.get(), settings.get(), &made));
  return Engine(made);
}

Error refusal(const Runtime& rt, const Model& model, std::initializer_list<Setting> settings) {
  tsr_engine* made = nullptr;
  return take(tsr_engine_new(rt.get(), model.get(), options(settings).get(), &made));
}

struct Text {
  Tokens tokens;
  std::string text;
  int32_t finish = TSR_FINISH_NONE;
  bool operator==(const Text&) const = default;
};

std::map<std::pair<int64_t, int32_t>, Text> collect(const Engine& from) {
  std::map<std::pair<int64_t, int32_t>, Text> texts;
  for (;;) {
    tsr_event event{};
    event.struct_size = sizeof event;
    ok(tsr_engine_next(from.get(), -1, &event));
    if (event.kind == TSR_EVENT_PENDING) return texts;
    Text& text = texts[{event.request, event.index}];
    if (event.kind == TSR_EVENT_TOKEN) {
      text.tokens.push_back(event.token);
      text.text.append(event.text, event.text_size);
    }
    if (event.kind == TSR_EVENT_END) text.finish = event.finish;
  }
}

Json report(const Engine& from) {
  return Json::parse(text([&](tsr_text** out) { return tsr_engine_report(from.get(), out); }));
}

const int64_t k1 = 1;

}  // namespace

TEST_CASE("drafts: a model's own drafts are right, and its texts come in far fewer steps") {
  for (const ServingLayout& layout : {kServingLayouts[0], kServingLayouts[3]}) {
    const auto plain = core_of(drafting(layout, nullptr));
    const auto speculative = core_of(drafting(layout, new_model(kServedModel, 0)));
    CHECK(serve(*speculative, 0, false, 4) == serve(*plain, 0, false, 4));
    const ServingCore::Counts counts = speculative->counts();
    CHECK(counts.drafted > 100);
    CHECK(counts.accepted >= counts.drafted * 95 / 100);
    CHECK(counts.steps * 3 < plain->counts().steps);
    CHECK(counts.draft_seconds > 0);
    CHECK(!speculative->draft_memory().empty());
    CHECK(plain->draft_memory().empty());
  }
}

TEST_CASE("drafts: repeated text comes in fewer steps by what it said before") {
  const auto plain = core_of(drafting(kServingLayouts[0], nullptr));
  ServingSettings settings = drafting(kServingLayouts[0], nullptr);
  settings.speculates = settings.always_speculates = true;
  const auto speculative = core_of(settings);
  CHECK(serve(*speculative, 0, false, 1) == serve(*plain, 0, false, 1));
  CHECK(speculative->counts().accepted > 0);
  CHECK(speculative->counts().steps + speculative->counts().accepted == plain->counts().steps);
}

TEST_CASE("drafts: wrong drafts change no token, even where a text is preempted or cancelled") {
  for (const int64_t seed : {0, 1}) {
    // The first is the model itself, which drafts well what is drawn at random now and then.
    const auto draft = seed == 0 ? new_model(kServedModel, 0) : new_model(kOther, seed);
    const auto plain = core_of(drafting(kServingLayouts[0], nullptr));
    const auto speculative = core_of(drafting(kServingLayouts[0], draft, 34));
    const auto wanted = serve(*plain, 0.9, false);
    CHECK(serve(*speculative, 0.9, false) == wanted);
    check_alike(serve(*speculative, 0.9, true), wanted);
    CHECK(serve(*speculative, 0.9, false) == wanted);
    const ServingCore::Counts counts = speculative->counts();
    CHECK(counts.drafted > counts.accepted);
    CHECK(counts.preemptions > 0);
  }
}

TEST_CASE("drafts: a draft with a shorter context drafts as far as that") {
  const auto plain = core_of(drafting(kServingLayouts[0], nullptr));
  const auto speculative =
      core_of(drafting(kServingLayouts[0], new_model("llama:L=1,C=32,H=2,KV=1,F=32,V=96,T=24", 1)));
  CHECK(serve(*speculative, 0.5, false) == serve(*plain, 0.5, false));
  CHECK(speculative->counts().drafted > 0);
}

TEST_CASE("drafts: a model that is recovered after a failure drafts as before") {
  const auto speculative = core_of(drafting(kServingLayouts[0], new_model(kServedModel, 0)));
  const auto wanted = serve(*speculative, 0, false);
  std::vector<ServingEvent> events;
  REQUIRE(speculative->recover(tessera::Status(tessera::StatusCode::kInternal, "lost"), events).ok());
  CHECK(serve(*speculative, 0, false) == wanted);
}

TEST_CASE("drafts: where they pay they go on, and where they do not little time is lost") {
  DraftBackoff good, bad, once_bad;
  int64_t drafted = 0;
  double bad_s = 0, once_bad_s = 0, plain_s = 0;
  for (int64_t step = 0; step < 20000; ++step) {
    if (good.is_drafting()) {
      ++drafted;
      good.record_drafted(2, 1.5, step == 0 ? 20 : 0);  // 20: its texts are new to the draft model
    } else {
      good.record_plain(1);
    }
  }
  CHECK(drafted > 19000);
  const auto run = [&](DraftBackoff& backoff, double spent, double worth, double& total) {
    if (backoff.is_drafting()) {
      backoff.record_drafted(worth, spent, 0);
      plain_s += worth;
      total += spent;
    } else {
      backoff.record_plain(1);
      plain_s += 1;
      total += 1;
    }
  };
  for (int64_t step = 0; step < 20000; ++step) {
    run(bad, 6, 1.1, bad_s);
    if (step > 2000) CHECK(plain_s > 0.97 * bad_s);
  }
  CHECK(plain_s > 0.99 * bad_s);
  // One that begins to be right is found out.
  plain_s = 0;
  for (int64_t step = 0; step < 40000; ++step)
    run(once_bad, step < 500 ? 3 : 1.2, step < 500 ? 1.0 : 2.4, once_bad_s);
  CHECK(plain_s > 1.5 * once_bad_s);
}

TEST_CASE("engine: a draft model changes no text, with grammars, several texts and tp") {
  const Runtime rt = runtime();
  const Model model = bytes_model(), small = bytes_model("llama:L=1,C=32,H=2,KV=1,F=32,V=256,T=256", 4);
  const Scratch scratch;
  const std::string path = (scratch.path / "draft.tsr").string();
  ok(tsr_model_save(small.get(), path.c_str(), nullptr));
  const Engine plain = engine(rt, model, options({{"sequences", int64_t{4}}}));
  const auto ask = [](const Engine& it) {
    for (int64_t i = 0; i < 6; ++i) {
      int64_t request = -1;
      const double temperature = i % 2 == 0 ? 0.0 : 0.9;
      const std::string pattern = i % 3 == 0 ? "[a-f]+(x[0-9]+)*" : "(.|\\n)*";
      ok(tsr_engine_submit(it.get(),
                           options({{"max_tokens", int64_t{40}},
                                    {"seed", i},
                                    {"temperature", temperature},
                                    {"n", 1 + i % 2},
                                    {"regex", pattern}})
                               .get(),
                           "some words, some words", TSR_TEXT_END, &request));
    }
    return collect(it);
  };
  const auto wanted = ask(plain);
  for (const char* parallel : {"", "tp=2"}) {
    const Engine speculative = engine(rt, model,
                                   options({{"sequences", int64_t{4}},
                                            {"devices", std::string(*parallel ? "cpu:2" : "cpu:1")},
                                            {"parallel", std::string(parallel)},
                                            {"speculation", std::string("draft")},
                                            {"draft_model", path},
                                            {"draft_tokens", int64_t{3}}}));
    if (*parallel) {  // its sums have another order
      ask(speculative);
    } else {
      CHECK(ask(speculative) == wanted);
    }
    const Json figures = report(speculative);
    CHECK(figures["speculated"].get<int64_t>() >= figures["accepted"].get<int64_t>());
    CHECK(figures["speculated"].get<int64_t>() > 0);
    CHECK(figures["draft_seconds"].get<double>() > 0);
    CHECK(figures["draft_devices"].size() == (*parallel ? 2 : 1));
    CHECK(figures["free_cache_tokens"] == figures["cache_tokens"]);
  }
  CHECK(!report(plain).contains("draft_devices"));
}

TEST_CASE("engine: a model's own draft block changes no text, is counted, and is part of the model") {
  const Runtime rt = runtime();
  const Model model =
      bytes_model("qwen3_5:L=2,C=48,H=6,KV=6,F=48,HS=6,GS=6,VS=8,KS=4,V=256,T=256,attention_every=2,MTP=1", 4);
  const Json info = Json::parse(text([&](tsr_text** out) { return tsr_model_info(model.get(), out); }));
  CHECK(info["draft_parameters"].get<int64_t>() == 2 * 48 * 48 + 3 * 48 + (5 * 48 + 3 * 48) * 48 + 2 * 48 + 2 * 8);
  CHECK(info["inputs"].size() == 2);
  const auto ask = [](const Engine& it) {
    for (int64_t i = 0; i < 6; ++i) {
      int64_t request = -1;
      ok(tsr_engine_submit(it.get(),
                           options({{"max_tokens", int64_t{40}}, {"seed", i}, {"temperature", i % 2 == 0 ? 0.0 : 0.9}, {"n", 1 + i % 2}}).get(),
                           "some words, some words", TSR_TEXT_END, &request));
    }
    return collect(it);
  };
  const auto wanted = ask(engine(rt, model, options({{"sequences", int64_t{4}}})));
  const Scratch scratch;
  const std::string path = (scratch.path / "model.tsr").string();
  ok(tsr_model_save(model.get(), path.c_str(), nullptr));
  tsr_model* made = nullptr;
  ok(tsr_model_load(path.c_str(), &made));
  const Model loaded(made);
  for (const Model* const each : {&model, &loaded}) {
    const Engine speculative = engine(rt, *each, options({{"sequences", int64_t{4}}, {"speculation", std::string("mtp")}}));
    CHECK(ask(speculative) == wanted);
    const Json figures = report(speculative);
    CHECK(figures["speculated"].get<int64_t>() >= figures["accepted"].get<int64_t>());
    CHECK(figures["speculated"].get<int64_t>() > 0);
    CHECK(figures["draft_seconds"].get<double>() > 0);
    CHECK(figures["draft_devices"].size() == 1);
  }
  const Error refused = refusal(rt, bytes_model(), {{"speculation", std::string("mtp")}});
  CHECK(refused.code == TSR_INVALID_ARGUMENT);
  for (const char* const word : {"'speculation' mtp", "MTP", "ngram"}) CHECK(refused.message.find(word) != std::string::npos);
}

TEST_CASE("engine: a draft model's memory is part of the limit") {
  const Runtime rt = runtime();
  const Model model = bytes_model();
  const Scratch scratch;
  const std::string path = (scratch.path / "draft.tsr").string();
  ok(tsr_model_save(model.get(), path.c_str(), nullptr));
  const int64_t limit = int64_t{4} << 20;
  const Engine it = engine(rt, model,
                           options({{"sequences", int64_t{4}},
                                    {"memory_limit", limit},
                                    {"step_tokens", int64_t{32}},
                                    {"speculation", std::string("draft")},
                                    {"draft_model", path}}));
  const Json figures = report(it);
  CHECK(figures["devices"][0]["arena_bytes"]["measured"].get<int64_t>() +
            figures["draft_devices"][0]["arena_bytes"]["measured"].get<int64_t>() <=
        limit);
}

TEST_CASE(
    "engine: draft models of another vocabulary, missing files and options without them are refused by "
    "name") {
  const Runtime rt = runtime();
  const Model model = bytes_model();
  const Scratch scratch;
  const auto saved = [&](const char* name, const Model& it) {
    const std::string path = (scratch.path / name).string();
    ok(tsr_model_save(it.get(), path.c_str(), nullptr));
    return path;
  };
  const auto check = [&](std::initializer_list<Setting> settings, tsr_code code,
                         std::initializer_list<const char*> words) {
    const Error error = refusal(rt, model, settings);
    CAPTURE(error.message);
    CHECK(error.code == code);
    for (const char* const word : words) CHECK(error.message.find(word) != std::string::npos);
  };
  const std::string draft = "draft", missing = (scratch.path / "none.tsr").string();
  check({{"speculation", draft}, {"draft_model", missing}}, TSR_NOT_FOUND, {"draft model", "none.tsr"});
  check({{"speculation", draft}}, TSR_INVALID_ARGUMENT, {"draft_model"});
  check({{"draft_model", missing}}, TSR_INVALID_ARGUMENT, {"draft_model", "off", "wanted draft"});
  check({{"speculation", std::string("ngram")}, {"draft_model", missing}}, TSR_INVALID_ARGUMENT,
        {"draft_model", "ngram"});
  check({{"draft_tokens", k1}}, TSR_INVALID_ARGUMENT, {"draft_tokens", "off"});
  check({{"speculation", draft}, {"draft_model", missing}, {"draft_tokens", int64_t{16}}},
        TSR_INVALID_ARGUMENT, {"draft_tokens", "16", "15"});
  tsr_model* made = nullptr;
  ok(tsr_model_new(kOther, nullptr, &made));
  const Model other(made);
  check({{"speculation", draft}, {"draft_model", saved("other.tsr", other)}}, TSR_INVALID_ARGUMENT,
        {"draft model", "96", "256"});
}

TEST_CASE("drafts: vocabularies are compared token by token") {
  const auto with = [](std::vector<std::string> tokens) {
    tessera::TokenizerData data;
    for (int byte = 0; byte < 256; ++byte) data.tokens.push_back(tessera::format("<0x{}>", byte));
    data.tokens.insert(data.tokens.end(), tokens.begin(), tokens.end());
    const auto tokenizer = tessera::Tokenizer::create(data);
    REQUIRE(tokenizer.ok());
    const auto model = new_model(kOther, 0);
    model->set_tokenizer(*tokenizer);
    return model;
  };
  const auto model = with({"one", "two"});
  CHECK(tessera::check_draft_vocabulary(*model, *with({"one", "two"})).ok());
  const auto message = [&](std::vector<std::string> tokens) {
    const tessera::Status status = tessera::check_draft_vocabulary(*model, *with(std::move(tokens)));
    CHECK(status.code() == tessera::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  CHECK(message({"one", "three"}).find("token 257 is 'three', wanted 'two'") != std::string::npos);
  CHECK(message({"one"}).find("token 257 is missing or unused, wanted 'two'") != std::string::npos);
  const auto padded = [&](std::vector<std::string> tokens, size_t used) {
    const auto model = with(tokens);
    tessera::TokenizerData data = model->tokenizer()->data();
    data.types.resize(data.tokens.size(), tessera::TokenType::kNormal);
    for (size_t id = used; id < data.types.size(); ++id) data.types[id] = tessera::TokenType::kUnused;
    model->set_tokenizer(*tessera::Tokenizer::create(data));
    return model;
  };
  CHECK(tessera::check_draft_vocabulary(*model, *padded({"one", "two", "[PAD258]", "[PAD259]"}, 258)).ok());
  CHECK(tessera::check_draft_vocabulary(*padded({"one", "two", "[PAD258]"}, 258), *model).ok());
}
