// Layers with a window in pages of their own: a request yields the same as alone and with room for everything, in the
// memory of the windows.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/serving/replicas/engine.h"
#include "tests/capi/batched_serving.h"
#include "tests/capi/test_server.h"
#include "tests/full.h"

namespace tessera::serving_tests {

namespace {

constexpr const char* kSomeWindows = "llama:L=3,C=48,H=6,KV=3,F=48,V=96,T=256,windows=20|0|9";
constexpr const char* kAllWindows = "llama:L=2,C=48,H=6,KV=3,F=48,V=96,T=256,window=20";

// Window pages are as many as one sequence needs.
ServingSettings tight(ServingSettings settings, int64_t window) {
  settings.window = window;
  settings.window_pages = least_window_pages(settings, settings.pages);
  return settings;
}

std::unique_ptr<ServingCore> core_of(const char* model, const ServingSettings& settings) {
  return new_core(new_runtime(), new_model(model), settings);
}

// Bytes of a page of 8 in a layer: keys and values of 3 heads of 8, f32.
constexpr int64_t kPageBytes = 8 * 2 * 3 * 8 * 4;

int64_t state_bytes(ServingCore& core) {
  int64_t sum = 0;
  for (const auto& [name, type] : core.runner().states()) sum += bytes(type);
  return sum;
}

}  // namespace

TEST_CASE("serving windows: tokens are those of each request alone, and of a pool with room for everything") {
  int64_t preemptions = 0;
  for (const char* const model : {kSomeWindows, kAllWindows})
    for (const ServingLayout& layout : {ServingLayout{"cpu:1", "", {}}, ServingLayout{"cpu:2", "tp=2", {}},
                                        ServingLayout{"cpu:2", "pp=2", {}}})
      for (const int64_t page_size : {8, 64}) {
        if (page_size == 64 && layout.devices != std::string("cpu:1") && !test::full()) continue;
        CAPTURE(std::string(model));
        CAPTURE(std::string(layout.parallel));
        CAPTURE(page_size);
        ServingSettings settings = settings_of(layout, page_size, 4 * 256 / page_size);
        settings.step_tokens = 24;
        ServingSettings large = settings, few = settings;
        large.window_pages = large.pages;
        few.pages = 2 * 256 / page_size;
        const auto alone = core_of(model, large), tight_core = core_of(model, tight(settings, 20)),
                   usual = core_of(model, settings), short_of_both = core_of(model, tight(few, 20));
        // All layers share one pool where windows would have no fewer pages.
        if (page_size == 64)
          CHECK(usual->counts().window_pages == 0);
        else
          CHECK(tight_core->counts().window_pages < usual->counts().window_pages);
        for (uint32_t mix = 0; mix < (test::full() ? 20 : 1); ++mix) {
          CAPTURE(mix);
          const std::vector<Asked> asked = requests_alike(mix, 14, {120, 70, 40});
          const std::vector<Given> given = serve(*usual, asked);
          check_each_alone(*alone, asked, given);
          check_each_alone(*alone, asked, serve(*tight_core, asked));
          check_each_alone(*alone, asked, serve(*short_of_both, asked));
        }
        preemptions += tight_core->counts().preemptions + short_of_both->counts().preemptions;
      }
  CHECK(preemptions > 0);
}

TEST_CASE("serving windows: forks, rewinds and drafts go on as texts of their own do") {
  for (const char* const model : {kSomeWindows, kAllWindows})
    for (const bool drafts : {false, true}) {
      ServingSettings settings = settings_of({"cpu:1", "", {}}, 8, 128);
      settings.speculates = settings.always_speculates = drafts;
      if (drafts)
        settings.draft = new_model(kSomeWindows, 3);  // whose windows share one pool with its other layers
      TestServer server(model, tight(settings, 20));
      uint32_t seed = 9;
      const Tokens prompt = random_tokens(seed, 90, 96);
      const Tokens text = joined(prompt, server.serve({prompt, 30}));
      for (const size_t size : {120, 119, 100, 90, 64, 33, 9, 1}) {
        CAPTURE(size);
        const Tokens asked = joined(first(text, size), random_tokens(seed, 3, 96));
        CHECK(server.serve({asked, 12}) == server.serve_alone({asked, 12}));
      }
      // A conversation's next turn computes its own tokens alone.
      TestServer talk(model, tight(settings, 20));
      const Tokens turn = joined(prompt, talk.serve({prompt, 30}));
      CHECK(talk.serve({joined(turn, {1, 2, 3}), 4}) == server.serve_alone({joined(turn, {1, 2, 3}), 4}));
      CHECK(talk.counts().reused == std::ssize(turn) - 1);
    }
}

TEST_CASE("serving windows: sequences are saved and restored with their windows") {
  const capi_test::Scratch folder;
  const auto save = [](TestServer& server, const Tokens& tokens, const std::string& path) {
    const Status status = server.core().save_sequence(tokens, 0, path);
    REQUIRE_MESSAGE(status.ok(), status.to_string());
  };
  for (const char* const model : {kSomeWindows, kAllWindows})
    for (const ServingLayout& layout :
         {ServingLayout{"cpu:1", "", {}}, ServingLayout{"cpu:2", "tp=2", DType::kF16},
          ServingLayout{"cpu:2", "pp=2", {}}}) {
      const ServingSettings two_pools = settings_of(layout, 8, 128);
      ServingSettings one_pool = two_pools;
      one_pool.pages = 32;  // fewer than windows would take
      uint32_t seed = 5;
      const Tokens prompt = random_tokens(seed, 90, 96);
      TestServer origin(model, two_pools), whole(model, one_pool);
      REQUIRE(origin.counts().window_pages > 0);
      REQUIRE(whole.counts().window_pages == 0);
      const Tokens given = origin.serve({prompt, 10}), text = joined(prompt, given);
      REQUIRE(whole.serve({prompt, 10}) == given);
      save(origin, text, folder / "windows");
      save(whole, text, folder / "whole");
      const auto file = SequenceFileReader::open(folder / "windows");
      REQUIRE(file.ok());
      CHECK(file->header().cached == 99);
      CHECK(file->header().window_from == 80);  // the page of position 99 - 19
      const Tokens more = joined(text, {1, 2, 3});
      const Tokens wanted = origin.serve_alone({more, 8});
      const auto restored_into = [&](const ServingSettings& settings, const std::string& path) {
        TestServer other(model, settings);
        const auto sequence = other.core().restore_sequence(path);
        REQUIRE_MESSAGE(sequence.ok(), sequence.status().to_string());
        CHECK(sequence->tokens == text);
        CHECK(other.counts().free_window_pages == other.counts().window_pages);
        CHECK(other.serve({more, 8}) == wanted);
        return other.counts().reused;
      };
      CHECK(restored_into(two_pools, folder / "windows") == 99);
      CHECK(restored_into(tight(two_pools, 20), folder / "windows") == 99);
      CHECK(restored_into(two_pools, folder / "whole") == 99);  // of all positions
      CHECK(restored_into(one_pool, folder / "whole") == 99);
      CHECK(restored_into(one_pool, folder / "windows") == 0);  // which has no windows of its beginning
      // A text that goes on from an earlier token, whose windows are not in the file.
      TestServer other(model, two_pools);
      REQUIRE(other.core().restore_sequence(folder / "windows").ok());
      const Tokens earlier = joined(first(text, 60), {4, 5});
      CHECK(other.serve({earlier, 8}) == origin.serve_alone({earlier, 8}));
    }
}

TEST_CASE("serving windows: both pools have the bytes of their pages, and fill a memory limit") {
  ServingSettings settings = settings_of({"cpu:1", "", {}}, 8, 0);
  settings.step_tokens = 16;
  // Each sequence has 32 pages of the context, and 2 * (3 + 1) of the windows; 2 are for a step.
  const auto core = core_of(kSomeWindows, settings);
  CHECK(core->counts().pages == 4 * 32);
  CHECK(core->counts().window_pages == 4 * 8 + 2);
  CHECK(state_bytes(*core) == (4 * 32 + 2 * (4 * 8 + 2)) * kPageBytes);
  CHECK(state_bytes(*core_of(kAllWindows, settings)) == 2 * (4 * 8 + 2) * kPageBytes);
  const auto arena_of = [](ServingCore& it) {
    return it.runner().prepared()->executable->program().ranks[0].arena_bytes;
  };
  for (const char* const model : {kSomeWindows, kAllWindows}) {
    const auto all = core_of(model, settings);
    ServingSettings limited = settings;
    limited.compute.memory_limit = arena_of(*all) - 7000;
    const auto fitted = core_of(model, limited);
    CHECK(arena_of(*fitted) <= limited.compute.memory_limit);
    // Less than a page of every pool is left.
    CHECK(arena_of(*fitted) + 3 * kPageBytes + 256 > limited.compute.memory_limit);
    CHECK(fitted->counts().window_pages <= all->counts().window_pages);
    const std::vector<Asked> asked = requests_alike(1, 6, {120, 70, 40});
    check_each_alone(*all, asked, serve(*fitted, asked));
  }
}

namespace {

// The tokens of a request, from all events up to its end.
Tokens tokens_of(Engine& engine, int64_t request) {
  Tokens tokens;
  for (;;) {
    const auto event = engine.next(60);
    REQUIRE_MESSAGE(event.ok(), event.status().to_string());
    REQUIRE(event->request == request);
    if (event->kind == ServingEvent::Kind::kToken) tokens.push_back(event->token);
    if (event->kind == ServingEvent::Kind::kEnd) return tokens;
  }
}

int64_t submitted(Engine& engine, const Tokens& tokens, const Options& options) {
  const auto request = engine.submit_tokens(tokens, options);
  REQUIRE_MESSAGE(request.ok(), request.status().to_string());
  return *request;
}

}  // namespace

TEST_CASE(
    "serving windows: scores, vectors and texts of replicas are those of a pool with room for everything") {
  const auto engine_of = [](int64_t window_tokens, const char* devices, const char* parallel) {
    auto made = Engine::create(new_runtime(), new_model(kSomeWindows),
                               {{"devices", std::string(devices)},
                                {"parallel", std::string(parallel)},
                                {"step_tokens", int64_t{64}},
                                {"embeddings", int64_t{1}},
                                {"window_cache_tokens", window_tokens}});
    REQUIRE_MESSAGE(made.ok(), made.status().to_string());
    return std::move(*made);
  };
  const auto large = engine_of(4096, "cpu:1", ""), small = engine_of(256, "cpu:1", ""),
             replicas = engine_of(512, "cpu:2", "dp=2");
  uint32_t seed = 3;
  const Tokens context = random_tokens(seed, 140, 96);
  for (const size_t size : {140, 90, 140, 20}) {
    CAPTURE(size);
    const Tokens text = joined(first(context, size), random_tokens(seed, 30, 96));
    std::vector<std::vector<float>> found;
    std::vector<Tokens> texts;
    for (Engine* const engine : {large.get(), small.get(), replicas.get()}) {
      std::vector<float>& values = found.emplace_back(text.size() + 48);
      const std::span<float> scores(values.data(), text.size());
      const int64_t scored = submitted(*engine, text, {{"score_from", static_cast<int64_t>(size)}});
      tokens_of(*engine, scored);
      REQUIRE(*engine->take_scores(scored, scores, {}) == text.size() - size);
      const int64_t embedded = submitted(*engine, text, {{"embed", int64_t{1}}});
      tokens_of(*engine, embedded);
      REQUIRE(*engine->take_embedding(embedded, std::span(values).last(48)) == 48);
      texts.push_back(
          tokens_of(*engine, submitted(*engine, text, {{"max_tokens", int64_t{20}}, {"seed", int64_t{1}}})));
    }
    CHECK(found[1] == found[0]);
    CHECK(found[2] == found[0]);
    CHECK(texts[0].size() == 20);
    CHECK(texts[1] == texts[0]);
    CHECK(texts[2] == texts[0]);
  }
}

TEST_CASE("serving windows: the option is of models with windows, has room for one, and is reported") {
  const auto refusal = [](const char* model, int64_t tokens) {
    const auto made = Engine::create(new_runtime(), new_model(model),
                                     {{"devices", std::string("cpu:1")}, {"window_cache_tokens", tokens}});
    REQUIRE(!made.ok());
    CHECK(made.status().code() == StatusCode::kInvalidArgument);
    return made.status().to_string();
  };
  CHECK(
      refusal(kServedModel, 640).find("no layer of the model has a window shorter than the context of 256") !=
      std::string::npos);
  // 20 - 1 + 256 positions meet 6 pages of 64 at most; one is copied.
  CHECK(refusal(kSomeWindows, 300).find("room for 320 tokens, wanted at least 448") != std::string::npos);
  const auto engine = Engine::create(new_runtime(), new_model(kSomeWindows),
                                     {{"devices", std::string("cpu:2")},
                                      {"parallel", std::string("dp=2")},
                                      {"window_cache_tokens", int64_t{1000}}});
  REQUIRE_MESSAGE(engine.ok(), engine.status().to_string());
  const auto report = (*engine)->report_json();
  REQUIRE(report.ok());
  const auto figures = nlohmann::json::parse(*report);
  CHECK(figures["window_cache_tokens"] == 1024);
  CHECK(figures["free_window_cache_tokens"] == 1024);
  CHECK(figures["window"] == 20);
}

}  // namespace tessera::serving_tests
