// A mix: requests with shared beginnings, some of which continue another's text; they arrive, are cancelled, saved and restored at
// any step. Each has its results alone.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/capi/batched_serving.h"
#include "tests/capi/c_api.h"
#include "tests/capi/test_server.h"

namespace tessera::serving_tests {

struct MixRequest {
  ServingRequest request;
  int64_t arrives = 0;       // before which step
  int64_t cancelled = -1;  // likewise; -1: never
  std::vector<Given> alone;  // of each text
};

struct Mix {
  std::vector<MixRequest> requests;
  struct Save {
    size_t request;  // its first text
    int64_t step;    // before which step
    bool restores;   // into the same core at once
  };
  std::vector<Save> saves;
};

// Appends the events of a step to the results of their texts: given[numbers[request]][text]. `running`: texts that have not ended.
inline void take_events(std::vector<ServingEvent>& events, const std::map<int64_t, size_t>& numbers,
                        std::vector<std::vector<Given>>& given, int64_t& running) {
  for (const ServingEvent& event : events) {
    Given& it = given[numbers.at(event.request)][static_cast<size_t>(event.index)];
    REQUIRE(it.finish == ServingEvent::Finish::kNone);  // nothing after the end
    if (event.kind == ServingEvent::Kind::kToken) it.tokens.push_back(event.token);
    if (event.kind != ServingEvent::Kind::kEnd) continue;
    it.finish = event.finish;
    --running;
  }
  events.clear();
}

// Serves one request to its end.
inline std::vector<Given> serve_texts(ServingCore& core, const ServingRequest& request) {
  std::vector<std::vector<Given>> given(1, std::vector<Given>(static_cast<size_t>(request.sampling->best_of)));
  const auto number = submit(core, request);
  REQUIRE_MESSAGE(number.ok(), number.status().to_string());
  std::vector<ServingEvent> events;
  for (int64_t running = request.sampling->best_of, steps = 0; running > 0; ++steps) {
    REQUIRE(steps < 10000);
    const auto more = core.step(events);
    REQUIRE_MESSAGE(more.ok(), more.status().to_string());
    take_events(events, {{*number, 0}}, given, running);
  }
  return given[0];
}

// `alone`: a core without prefixes. No request is longer than `most` tokens.
inline Mix make_mix(uint32_t seed, ServingCore& alone, size_t count, size_t most) {
  Mix mix;
  const Tokens common = random_tokens(seed, 20 + next(seed) % 70, 96);
  for (size_t i = 0; i < count; ++i) {
    MixRequest made;
    Tokens& prompt = made.request.prompt;
    const uint32_t kind = next(seed) % 4;
    if (kind >= 2 && i > 0) {  // a turn or a fork: the beginning of another text
      const MixRequest& before = mix.requests[next(seed) % i];
      const Tokens text = joined(before.request.prompt, before.alone[next(seed) % before.alone.size()].tokens);
      prompt = next(seed) % 2 == 0 ? text : first(text, 1 + next(seed) % text.size());
    } else if (kind == 1) {
      prompt = first(common, next(seed) % common.size());
    }
    prompt.resize(std::min(prompt.size(), most - 50));
    for (const int32_t token : random_tokens(seed, 1 + next(seed) % 30, next(seed) % 3 == 0 ? 3 : 96)) prompt.push_back(token);
    const auto sampling = std::make_shared<SamplingSettings>();
    sampling->max_tokens = static_cast<int64_t>(1 + next(seed) % std::min<size_t>(most - prompt.size(), 40));
    sampling->temperature = next(seed) % 2 == 0 ? 0 : 0.9;
    sampling->best_of = next(seed) % 5 == 0 ? 1 + next(seed) % 3 : 1;
    made.request.sampling = sampling;
    made.request.seed = next(seed);
    made.request.priority = static_cast<int32_t>(next(seed) % 3);
    made.arrives = next(seed) % 30;
    if (next(seed) % 5 == 0) made.cancelled = made.arrives + next(seed) % 20;
    made.alone = serve_texts(alone, made.request);
    mix.requests.push_back(std::move(made));
  }
  for (int i = 0; i < 2; ++i)
    mix.saves.push_back({next(seed) % count, static_cast<int64_t>(next(seed) % 60), next(seed) % 2 == 0});
  return mix;
}

// Serves the mix; saved sequences are in the files "0", "1" of the folder. No page is lost by it.
inline std::vector<std::vector<Given>> serve(ServingCore& core, const Mix& mix, const capi_test::Scratch& folder) {
  std::vector<std::vector<Given>> given(mix.requests.size());
  std::vector<int64_t> number_of(mix.requests.size(), -1);
  std::map<int64_t, size_t> numbers;
  std::vector<ServingEvent> events;
  int64_t running = 0;
  const auto save = [&](size_t i) {
    const Mix::Save& it = mix.saves[i];
    const MixRequest& of = mix.requests[it.request];
    const Tokens text = given[it.request].empty() ? of.request.prompt : joined(of.request.prompt, given[it.request][0].tokens);
    const std::string path = folder / std::to_string(i).c_str();
    const Status saved = core.save_sequence(text, 0, path);
    REQUIRE_MESSAGE(saved.ok(), saved.to_string());
    if (!it.restores) return;
    const auto restored = core.restore_sequence(path);
    REQUIRE_MESSAGE(restored.ok(), restored.status().to_string());
    CHECK(restored->tokens == text);
  };
  const auto is_left = [&](int64_t step) {
    return running > 0 || std::ranges::any_of(mix.requests, [&](const MixRequest& it) { return it.arrives >= step; }) ||
           std::ranges::any_of(mix.saves, [&](const Mix::Save& it) { return it.step >= step; });
  };
  for (int64_t step = 0; is_left(step); ++step) {
    REQUIRE(step < 10000);
    for (size_t i = 0; i < mix.requests.size(); ++i) {
      const MixRequest& it = mix.requests[i];
      if (it.arrives == step) {
        const auto number = submit(core, it.request);
        REQUIRE_MESSAGE(number.ok(), number.status().to_string());
        numbers[number_of[i] = *number] = i;
        given[i].resize(it.alone.size());
        running += std::ssize(it.alone);
      }
      if (it.cancelled == step) core.cancel(number_of[i], events);
    }
    for (size_t i = 0; i < mix.saves.size(); ++i)
      if (mix.saves[i].step == step) save(i);
    const auto more = core.step(events);
    REQUIRE_MESSAGE(more.ok(), more.status().to_string());
    take_events(events, numbers, given, running);
  }
  const ServingCore::Counts counts = core.counts();
  CHECK(counts.running == 0);
  CHECK(counts.waiting == 0);
  CHECK(counts.free_pages == counts.pages);
  CHECK(counts.free_window_pages == counts.window_pages);
  return given;
}

// Each text equals that alone; a cancelled one is a beginning of it.
inline void check_as_alone(const Mix& mix, const std::vector<std::vector<Given>>& given) {
  for (size_t i = 0; i < mix.requests.size(); ++i)
    for (size_t text = 0; text < given[i].size(); ++text) {
      CAPTURE(i);
      CAPTURE(text);
      const Given &wanted = mix.requests[i].alone[text], &found = given[i][text];
      if (found.finish == ServingEvent::Finish::kCancelled)
        CHECK(found.tokens == first(wanted.tokens, std::min(found.tokens.size(), wanted.tokens.size())));
      else
        CHECK(found == wanted);
    }
}

}  // namespace tessera::serving_tests
