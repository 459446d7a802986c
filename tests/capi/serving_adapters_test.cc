// Adapters per request: in one batch of several adapters and none each request has the tokens that it has alone, which are
// those of a model with that adapter; slots are shared out; what cannot be served is refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/inference/embedder.h"
#include "engine/inference/scorer.h"
#include "engine/model/adapters.h"
#include "engine/model/export.h"
#include "engine/serving/scheduler/serving_core.h"
#include "graph/base/text.h"
#include "tests/capi/batched_serving.h"
#include "tests/capi/random_adapter.h"
#include "tests/full.h"

namespace tessera {
namespace {

using serving_tests::Asked, serving_tests::Given, serving_tests::Tokens, serving_tests::greedy;
using serving_tests::new_core, serving_tests::new_model, serving_tests::new_runtime;
using serving_tests::next, serving_tests::random_tokens, serving_tests::kServedModel;
using serving_tests::serve, serving_tests::serve_alone, serving_tests::check_each_alone;

int64_t loaded(ServingCore& core, const SharedModel& adapted) {
  const auto adapter = core.load_adapter(adapted);
  REQUIRE_MESSAGE(adapter.ok(), adapter.status().to_string());
  return *adapter;
}

Tokens prompt_of(uint32_t seed, size_t size) { return random_tokens(seed, size, 96); }

ServingRequest request_of(Tokens prompt, int64_t adapter, int64_t tokens, int32_t priority = 0) {
  Asked asked = greedy(std::move(prompt), tokens, adapter);
  asked.priority = priority;
  return serving_tests::request_of(asked);
}

void submit(ServingCore& core, const ServingRequest& request, int64_t number) {
  auto texts = core.make_texts(request, number);
  REQUIRE_MESSAGE(texts.ok(), texts.status().to_string());
  core.add(std::move(*texts));
}

// A common beginning of more than a page, so that pages would be shared if adapters did not part them.
std::vector<Asked> mixture(const std::vector<int64_t>& adapters, size_t count, uint32_t seed) {
  std::vector<Asked> asked;
  const Tokens common = prompt_of(99, 70);
  for (size_t i = 0; i < count; ++i) {
    Tokens prompt = prompt_of(seed + static_cast<uint32_t>(i), 1 + next(seed) % 20);
    if (i % 2 == 0) prompt.insert(prompt.begin(), common.begin(), common.end());
    asked.push_back(greedy(std::move(prompt), 4 + next(seed) % 12, adapters[i % adapters.size()]));
    asked.back().arrives = next(seed) % 8;
  }
  return asked;
}

Tokens generated(const std::shared_ptr<Runtime>& runtime, const std::shared_ptr<SharedModel>& model,
                 const Asked& asked) {
  return serving_tests::generated(*serving_tests::new_generator(runtime, model), asked);
}

}  // namespace

TEST_CASE(
    "serving adapters: each request's tokens are those of its run alone, and of a model with its adapter") {
  const auto runtime = new_runtime();
  const auto model = new_model(kServedModel);
  const std::vector<std::shared_ptr<SharedModel>> adapted = {
      with_adapter(model, 1, 4), with_adapter(model, 2, 8), with_adapter(model, 3, 1)};
  std::vector<Tokens> wanted;  // of models with the adapters
  for (const auto& layout : serving_tests::kTogetherLayouts) {
    CAPTURE(layout.parallel);
    ServingSettings settings = serving_tests::settings_on(layout);
    settings.rows = 6;
    settings.adapters = 3;
    settings.adapter_rank = 8;
    const auto core = new_core(runtime, model, settings);
    std::vector<int64_t> adapters;
    for (const auto& each : adapted) adapters.push_back(loaded(*core, *each));
    adapters.push_back(-1);
    std::vector<Asked> asked = mixture(adapters, 13, 5);
    const std::vector<Given> batched = serve(*core, asked);
    if (wanted.empty())
      for (const Asked& each : asked)
        wanted.push_back(generated(
            runtime, each.adapter < 0 ? model : adapted[static_cast<size_t>(each.adapter - adapters[0])],
            each));
    for (size_t i = 0; i < asked.size(); ++i) CHECK(batched[i].tokens == wanted[i]);
    settings.shares_prefixes = false;
    const auto other_core = new_core(runtime, model, settings);
    std::map<int64_t, int64_t> numbers = {{-1, -1}};
    for (size_t i = adapted.size(); i-- > 0;)
      numbers[adapters[i]] = loaded(*other_core, *adapted[i]);  // in other slots
    for (Asked& each : asked) each.adapter = numbers.at(each.adapter);
    check_each_alone(*other_core, asked, batched);
  }
}

TEST_CASE("serving adapters: requests without an adapter have the tokens of a server without adapters") {
  const auto runtime = new_runtime();
  const auto model = new_model("gpt2:L=2,C=48,H=4,V=96,T=256");
  ServingSettings settings;
  settings.rows = 4;
  const auto plain = new_core(runtime, model, settings);
  settings.adapters = 2;
  settings.adapter_rank = 4;
  const auto core = new_core(runtime, model, settings);
  const auto adapted = with_adapter(model, 4, 4);
  const int64_t adapter = loaded(*core, *adapted);
  const std::vector<Asked> asked = mixture({-1, adapter}, 6, 3);
  const auto batched = serve(*core, asked);
  for (size_t i = 0; i < asked.size(); ++i)
    if (asked[i].adapter < 0)
      CHECK(batched[i] == serve_alone(*plain, asked[i]));
    else
      CHECK(batched[i].tokens == generated(runtime, adapted, asked[i]));
}

TEST_CASE("serving adapters: the same over weights of blocks, in bf16, and with factors of 16 bits") {
  const auto runtime = new_runtime();
  const auto model = new_model("llama:L=2,C=64,H=4,KV=2,F=96,V=96,T=256");
  const auto first = with_adapter(model, 1, 4), second = with_adapter(model, 2, 6);
  struct Form {
    std::optional<DType> weights;
    DType precision, factors;
  };
  for (const Form& form :
       {Form{DType::kQ8_0, DType::kF32, DType::kF32}, Form{DType::kQ4_0, DType::kF32, DType::kF16},
        Form{DType::kBF16, DType::kF32, DType::kBF16}, Form{{}, DType::kBF16, DType::kBF16}}) {
    CAPTURE(to_text(form.factors));
    ServingSettings settings;
    settings.inference.weights = form.weights;
    settings.inference.precision = form.precision;
    settings.rows = 5;
    settings.adapters = 2;
    settings.adapter_rank = 8;
    settings.adapter_type = form.factors;
    const auto core = new_core(runtime, model, settings);
    const std::vector<Asked> asked = mixture({loaded(*core, *first), loaded(*core, *second), -1}, 7, 9);
    const auto batched = serve(*core, asked);
    check_each_alone(*core, asked, batched);
    for (size_t i = 0; i < asked.size(); ++i) {
      Asked plain = asked[i];
      plain.adapter = -1;
      CHECK((batched[i] == serve_alone(*core, plain)) == (asked[i].adapter < 0));
    }
  }
}

TEST_CASE("serving adapters: more of them than slots take turns, and one in use outlives its end") {
  const size_t count = test::full() ? 100 : 9;
  const auto runtime = new_runtime();
  const auto model = new_model(kServedModel);
  ServingSettings settings;
  settings.rows = 6;
  settings.adapter_rank = 2;
  settings.adapters = 16;
  const auto many = new_core(runtime, model, settings);
  settings.adapters = 3;
  const auto few = new_core(runtime, model, settings);
  std::vector<int64_t> adapters;
  for (size_t i = 0; i < count; ++i) {
    const auto adapted = with_adapter(model, static_cast<uint32_t>(100 + i), 2);
    adapters.push_back(loaded(*many, *adapted));
    CHECK(loaded(*few, *adapted) == adapters.back());
  }
  const std::vector<Asked> asked = mixture(adapters, 2 * count + 3, 21);
  const auto given = serve(*few, asked);
  CHECK(given == serve(*many, asked));
  CHECK(few->counts().adapters_written >= static_cast<int64_t>(count));

  // Dropped while two requests use it, one of which still waits for a slot.
  ServingSettings one = settings;
  one.adapters = 1;
  const auto core = new_core(runtime, model, one);
  const int64_t first = loaded(*core, *with_adapter(model, 1, 2)),
                other = loaded(*core, *with_adapter(model, 2, 2));
  const Asked use = greedy(prompt_of(4, 9), 8, first);
  const Tokens wanted = serve(*core, {use})[0].tokens;
  std::vector<ServingEvent> events;
  for (const auto& [number, adapter] : {std::pair(10, first), std::pair(11, other), std::pair(12, first)})
    submit(*core, request_of(use.prompt, adapter, 8), number);
  REQUIRE(core->step(events).ok());
  const std::weak_ptr<const LoadedAdapter> held = *core->adapters().find(first);
  CHECK(core->drop_adapter(first).ok());
  CHECK_FALSE(held.expired());
  const auto message = [&](int64_t adapter) {
    return std::string(core->make_texts(request_of({1}, adapter, 1), 0).status().message());
  };
  CHECK(message(first) == "there is no adapter 0: it was dropped");
  CHECK(message(7) == "there is no adapter 7");
  CHECK_FALSE(core->drop_adapter(first).ok());
  while (*core->step(events)) {
  }
  std::map<int64_t, std::vector<int32_t>> tokens;
  for (const ServingEvent& event : events)
    if (event.kind == ServingEvent::Kind::kToken) tokens[event.request].push_back(event.token);
  CHECK(tokens[10] == wanted);
  CHECK(tokens[12] == wanted);
  CHECK(tokens[11] != wanted);
  CHECK(held.expired());
  CHECK(core->adapters().size() == 1);
  CHECK(loaded(*core, *with_adapter(model, 3, 2)) == 2);  // numbers are not used again
}

TEST_CASE(
    "serving adapters: a slot goes to the request that matters most, before those that have no row yet") {
  const auto runtime = new_runtime();
  const auto model = new_model(kServedModel);
  ServingSettings settings;
  settings.rows = 1;
  settings.adapters = 2;
  settings.adapter_rank = 2;
  const auto core = new_core(runtime, model, settings);
  std::vector<int64_t> adapters;
  for (uint32_t i = 0; i < 3; ++i) adapters.push_back(loaded(*core, *with_adapter(model, i, 2)));
  std::vector<ServingEvent> events;
  // The first runs; the second has a slot, and waits for the row; the third one has neither, and matters more.
  submit(*core, request_of({1, 2, 3}, adapters[0], 4), 0);
  submit(*core, request_of({1, 2, 3}, adapters[1], 4), 1);
  REQUIRE(core->step(events).ok());
  submit(*core, request_of({1, 2, 3}, adapters[2], 4, 1), 2);
  std::vector<int64_t> ended;
  for (bool more = true; more;) {
    const auto step = core->step(events);
    REQUIRE(step.ok());
    more = *step;
  }
  for (const ServingEvent& event : events)
    if (event.kind == ServingEvent::Kind::kEnd) ended.push_back(event.request);
  CHECK(ended == std::vector<int64_t>{0, 2, 1});
}

TEST_CASE("serving adapters: those of files are those of models") {
  const auto runtime = new_runtime();
  const auto model = new_model(kServedModel);
  ServingSettings settings;
  settings.rows = 3;
  settings.adapters = 3;
  settings.adapter_rank = 4;
  const auto core = new_core(runtime, model, settings);
  const auto adapted = with_adapter(model, 6, 3, {{"on", std::string("block.*.q,block.1.down")}});
  std::string pattern = (std::filesystem::temp_directory_path() / "tessera_adapters_XXXXXX").string();
  REQUIRE(mkdtemp(pattern.data()) != nullptr);
  std::vector<Asked> asked(3, greedy(prompt_of(3, 20), 12, loaded(*core, *adapted)));
  for (const auto& [i, name, adapters] :
       {std::tuple(1, "peft", int64_t{0}), std::tuple(2, "gguf", int64_t{1})}) {
    const std::string path = pattern + "/" + name;
    Options options = {{"format", std::string(name)}};
    if (adapters != 0) options.emplace("adapters", adapters);
    auto work = Export::create(adapted, path, options);
    REQUIRE_MESSAGE(work.ok(), work.status().to_string());
    while ((*work)->done() < 1) REQUIRE((*work)->step().ok());
    REQUIRE((*work)->finish().ok());
    const auto adapter = core->load_adapter(path);
    REQUIRE_MESSAGE(adapter.ok(), adapter.status().to_string());
    asked[static_cast<size_t>(i)].adapter = *adapter;
  }
  const auto given = serve(*core, asked);
  CHECK(given[1] == given[0]);
  CHECK(given[2] == given[0]);
  asked[0].adapter = -1;
  CHECK(given[0] != serve(*core, {asked[0]})[0]);
  std::filesystem::remove_all(pattern);
}

TEST_CASE("serving adapters: what cannot be applied by request is refused by name") {
  const auto runtime = new_runtime();
  const auto model = new_model(kServedModel);
  ServingSettings settings;
  settings.rows = 2;
  const auto plain = new_core(runtime, model, settings);
  CHECK(plain->load_adapter(AdapterFactors()).status().message().find("set adapters") !=
        std::string_view::npos);
  CHECK(plain->make_texts(request_of({1, 2}, 0, 2), 0).status().message().find("set adapters") !=
        std::string_view::npos);
  settings.adapters = 2;
  settings.adapter_rank = 4;
  const auto core = new_core(runtime, model, settings);
  const auto message = [&](const SharedModel& adapted) {
    return std::string(core->load_adapter(adapted).status().message());
  };
  CHECK(message(*model).find("no low-rank adapters") != std::string::npos);
  CHECK(message(*with_adapter(model, 1, 5)).find("is 5, slots have room for 4: raise adapter_rank") !=
        std::string::npos);
  CHECK(message(*with_adapter(model, 1, 2, {{"dora", int64_t{1}}})).find("block.0.q.lora_magnitude") !=
        std::string::npos);
  CHECK(message(*with_adapter(model, 1, 2, {{"also", std::string("token_embedding")}}))
            .find("'token_embedding', which trains") != std::string::npos);
  const auto wider = new_model("llama:L=2,C=48,H=6,KV=3,F=64,V=96,T=256");
  const std::string found = message(*with_adapter(wider, 1, 2));
  CHECK(found.find("another model") != std::string::npos);
  CHECK(found.find("[64, 48]") != std::string::npos);
  CHECK(found.find("[48, 48]") != std::string::npos);
  CHECK_FALSE(core->load_adapter(std::string("no/such/folder")).ok());
}

TEST_CASE("adapters: vectors and scores of a request are those of the model with its adapter") {
  const auto runtime = new_runtime();
  const auto model = new_model(kServedModel);
  const auto adapted = with_adapter(model, 3, 4);
  ServingSettings settings;
  settings.adapters = 2;
  settings.adapter_rank = 4;
  settings.hidden = true;
  const auto core = new_core(runtime, model, settings);
  const int64_t adapter = loaded(*core, *adapted);
  std::vector<int32_t> prompt = prompt_of(8, 70);
  const auto compute = [&](const PromptTask& task, int64_t with) {
    ServingRequest request = request_of(prompt, with, 0);
    request.task = task;
    submit(*core, request, 0);
    std::vector<ServingEvent> events;
    while (events.empty()) REQUIRE(core->step(events).ok());
    REQUIRE(events.back().result);
    return events.back().result->values;
  };
  // Low-rank products of requests are of other shapes than those of the model.
  const auto check_near = [](std::span<const float> found, std::span<const float> wanted) {
    REQUIRE(found.size() == wanted.size());
    for (size_t i = 0; i < found.size(); ++i) CHECK(std::abs(found[i] - wanted[i]) < 1e-4);
  };
  const std::vector<size_t> lengths = {prompt.size()};
  const PromptTask vector{PromptTask::Kind::kVector, {Pooling::kMean, false}, 0};
  const std::vector<float> row = compute(vector, adapter);
  const auto embedder = Embedder::create(runtime, adapted, {{"pooling", std::string("mean")}});
  REQUIRE(embedder.ok());
  REQUIRE((*embedder)->start_ids(prompt, lengths).ok());
  REQUIRE((*embedder)->finish().ok());
  check_near(row, *(*embedder)->rows());
  CHECK(compute(vector, -1) != row);
  const std::vector<float> scores = compute({PromptTask::Kind::kScores, {}, 1}, adapter);
  const auto scorer = Scorer::create(runtime, adapted, {});
  REQUIRE(scorer.ok());
  REQUIRE((*scorer)->start(prompt, lengths).ok());
  REQUIRE((*scorer)->finish().ok());
  check_near(scores, (*scorer)->logprobs()->subspan(1));
}

}  // namespace tessera
