// Requests that a ServingCore serves together, each of which is to have what it has alone.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/inference/generator.h"
#include "engine/serving/scheduler/serving_core.h"
#include "tests/capi/new_core.h"
#include "tests/capi/random_tokens.h"
#include "tests/capi/submit_request.h"
#include "text/grammar/mask_cache.h"

namespace tessera::serving_tests {

struct Asked {
  Tokens prompt;
  SamplingSettings sampling;
  uint64_t seed = 0;
  int32_t priority = 0;
  int64_t adapter = -1;
  std::shared_ptr<grammar::MaskCache> grammar;  // null: none
  int64_t arrives = 0;                          // before which step
  int64_t cancelled = -1;                       // before which step; -1: never
};

struct Given {
  Tokens tokens;
  ServingEvent::Finish finish = ServingEvent::Finish::kNone;
  bool operator==(const Given&) const = default;
};

// Always the likeliest token.
inline Asked greedy(Tokens prompt, int64_t tokens, int64_t adapter = -1) {
  Asked asked;
  asked.prompt = std::move(prompt);
  asked.sampling.max_tokens = tokens;
  asked.sampling.temperature = 0;
  asked.adapter = adapter;
  return asked;
}

// Tokens at most: of a beginning that prompts share more or less of, of each prompt after it, and generated.
struct MostTokens {
  uint32_t common, own, generated;
};

inline std::vector<Asked> requests_alike(uint32_t seed, size_t count, MostTokens most) {
  const Tokens common = random_tokens(seed, most.common, 96);
  std::vector<Asked> asked(count);
  for (Asked& it : asked) {
    it.prompt = first(common, next(seed) % 3 == 0 ? 0 : next(seed) % common.size());
    for (const int32_t token : random_tokens(seed, 1 + next(seed) % most.own, 96)) it.prompt.push_back(token);
    it.sampling.max_tokens = 1 + next(seed) % most.generated;
    it.sampling.temperature = 0.9;
    it.seed = next(seed);
    it.priority = static_cast<int32_t>(next(seed) % 3);
    it.arrives = next(seed) % 20;
    if (next(seed) % 6 == 0) it.cancelled = it.arrives + next(seed) % 20;
  }
  return asked;
}

inline ServingRequest request_of(const Asked& asked) {
  ServingRequest request;
  request.prompt = asked.prompt;
  request.sampling = std::make_shared<SamplingSettings>(asked.sampling);
  request.seed = asked.seed;
  request.priority = asked.priority;
  request.adapter = asked.adapter;
  if (asked.grammar != nullptr)
    request.structured.emplace(GrammarSource(), grammar::Constraint(asked.grammar), AnswerStart());
  return request;
}

// No page is lost by it.
inline std::vector<Given> serve(ServingCore& core, const std::vector<Asked>& asked) {
  std::vector<Given> given(asked.size());
  std::map<int64_t, size_t> numbers;
  std::vector<int64_t> number_of(asked.size(), -1);
  std::vector<ServingEvent> events;
  size_t ended = 0;
  for (int64_t step = 0; ended < asked.size(); ++step) {
    REQUIRE(step < 10000);
    for (size_t i = 0; i < asked.size(); ++i) {
      if (asked[i].arrives == step) {
        const auto number = submit(core, request_of(asked[i]));
        REQUIRE_MESSAGE(number.ok(), number.status().to_string());
        numbers[number_of[i] = *number] = i;
      }
      if (asked[i].cancelled == step) core.cancel(number_of[i], events);
    }
    const auto more = core.step(events);
    REQUIRE_MESSAGE(more.ok(), more.status().to_string());
    for (const ServingEvent& event : events) {
      Given& it = given[numbers.at(event.request)];
      REQUIRE(it.finish == ServingEvent::Finish::kNone);  // nothing after the end
      if (event.kind == ServingEvent::Kind::kToken) it.tokens.push_back(event.token);
      if (event.kind != ServingEvent::Kind::kEnd) continue;
      it.finish = event.finish;
      ++ended;
    }
    events.clear();
  }
  const ServingCore::Counts counts = core.counts();
  CHECK(counts.running == 0);
  CHECK(counts.waiting == 0);
  CHECK(counts.free_pages == counts.pages);
  CHECK(counts.free_window_pages == counts.window_pages);
  return given;
}

inline Given serve_alone(ServingCore& core, Asked asked) {
  asked.arrives = 0;
  asked.cancelled = -1;
  return serve(core, {asked})[0];
}

// Checks that each request's results equal those alone; of cancelled ones a prefix of them.
inline void check_each_alone(ServingCore& alone, const std::vector<Asked>& asked,
                             const std::vector<Given>& batched) {
  for (size_t i = 0; i < asked.size(); ++i) {
    CAPTURE(i);
    const Given wanted = serve_alone(alone, asked[i]);
    if (batched[i].finish == ServingEvent::Finish::kCancelled) {
      REQUIRE(batched[i].tokens.size() <= wanted.tokens.size());
      CHECK(std::equal(batched[i].tokens.begin(), batched[i].tokens.end(), wanted.tokens.begin()));
    } else {
      CHECK(batched[i] == wanted);
    }
  }
}

// A generator's text for the request, by the sampling rules that generators have.
inline Tokens generated(Generator& generator, const Asked& asked) {
  const Options options = {{"max_tokens", asked.sampling.max_tokens},
                           {"temperature", asked.sampling.temperature},
                           {"top_k", asked.sampling.top_k},
                           {"seed", static_cast<int64_t>(asked.seed)}};
  const Status started = generator.start(asked.prompt, options);
  REQUIRE_MESSAGE(started.ok(), started.to_string());
  Tokens tokens;
  for (;;) {
    const auto piece = generator.next(-1);
    REQUIRE(piece.ok());
    if (piece->kind == TextPiece::Kind::kEnd) return tokens;
    if (piece->token >= 0) tokens.push_back(piece->token);
  }
}

inline std::unique_ptr<Generator> new_generator(const std::shared_ptr<Runtime>& runtime,
                                                const std::shared_ptr<SharedModel>& model) {
  auto generator = Generator::create(runtime, model, {});
  REQUIRE_MESSAGE(generator.ok(), generator.status().to_string());
  return std::move(*generator);
}

struct TogetherLayout {
  const char *devices, *parallel;
};
inline constexpr TogetherLayout kTogetherLayouts[] = {
    {"cpu:1", ""}, {"cpu:2", "tp=2"}, {"cpu:3", "tp=3"}, {"cpu:2", "pp=2"}};

inline ServingSettings settings_on(const TogetherLayout& layout) {
  ServingSettings settings;
  settings.compute.devices = layout.devices;
  settings.compute.parallel = layout.parallel;
  settings.step_tokens = 48;
  return settings;
}

}  // namespace tessera::serving_tests
