// Recurrent layers: a request yields the same as alone, however its prompt is cut, from a snapshot, after a preemption, and with
// drafts; rows of state are never cleared, and hold what the last text left.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "graph/transform/serving.h"
#include "tests/capi/batched_serving.h"
#include "tests/capi/test_server.h"
#include "tests/full.h"

namespace tessera::serving_tests {

namespace {

// Six heads of each kind, for two devices and three.
constexpr const char* kConvolutions = "lfm2:L=3,C=48,H=6,KV=6,F=48,V=96,T=256,recurrent=1|0|1,tied";
constexpr const char* kDelta = "qwen3_5:L=4,C=48,H=6,KV=6,F=48,HS=12,GS=6,VS=5,KS=4,V=96,T=256,attention_every=2";
constexpr const char* kStates = "granitehybrid:L=3,C=48,H=6,KV=6,F=48,HS=6,GS=6,VS=8,KS=4,V=96,T=256,recurrent=1|1|0,conv_bias";
constexpr const char* kHalves =
    "nemotron_h:L=4,C=48,H=6,KV=6,F=48,HS=6,GS=6,VS=8,KS=4,V=96,T=256,halves=1|2|1|1,recurrent=1|0|0|1,conv_bias";
constexpr const char* kModels[] = {kDelta, kConvolutions, kStates, kHalves};

std::unique_ptr<ServingCore> core_of(const char* model, const ServingSettings& settings) {
  return new_core(new_runtime(), new_model(model), settings);
}

ServingSettings without_prefixes(ServingSettings settings) {
  settings.shares_prefixes = false;
  return settings;
}

}  // namespace

TEST_CASE("serving state: tokens are those of each request alone, on any devices, where pages run out, and with drafts") {
  int64_t preemptions = 0, reused = 0, drafted = 0;
  for (const char* const model : kModels)
    for (const ServingLayout& layout : {ServingLayout{"cpu:1", "", {}}, ServingLayout{"cpu:2", "tp=2", {}},
                                        ServingLayout{"cpu:3", "tp=3", {}}, ServingLayout{"cpu:2", "pp=2", {}}}) {
      if (layout.devices != std::string("cpu:1") && model != kDelta && !test::full()) continue;
      CAPTURE(std::string(model));
      CAPTURE(std::string(layout.parallel));
      ServingSettings settings = settings_of(layout, 8, 256 / 8);
      settings.step_tokens = 24;
      const auto alone = core_of(model, without_prefixes(settings_of(layout, 8, 256))), few = core_of(model, settings);
      settings.pages = 256;
      const auto usual = core_of(model, settings);
      settings.snapshots = 3;
      settings.speculates = settings.always_speculates = true;
      settings.draft = new_model("llama:L=1,C=48,H=6,F=48,V=96,T=256", 3);  // wrong more often than not
      const auto drafting = core_of(model, settings);
      for (uint32_t mix = 0; mix < (test::full() ? 20 : 1); ++mix) {
        CAPTURE(mix);
        const std::vector<Asked> asked = requests_alike(mix, 12, {100, 50, 30});
        check_each_alone(*alone, asked, serve(*usual, asked));
        const std::vector<Asked> growing = requests_alike(mix, 12, {30, 20, 120});
        check_each_alone(*alone, growing, serve(*few, growing));
        check_each_alone(*alone, asked, serve(*drafting, asked));
      }
      preemptions += few->counts().preemptions;
      reused += usual->counts().reused;
      drafted += drafting->counts().drafted;
    }
  CHECK(preemptions > 0);
  CHECK(reused > 0);
  CHECK(drafted > 0);
}

TEST_CASE("serving state: a prompt gives the same tokens however it is cut") {
  uint32_t seed = 3;
  for (const char* const model : kModels)
    for (const size_t size : {1, 2, 63, 64, 65, 129}) {
      CAPTURE(std::string(model));
      CAPTURE(size);
      const Asked asked = greedy(random_tokens(seed, static_cast<uint32_t>(size), 96), 8);
      std::vector<Tokens> given;
      for (const int64_t step : {256, 48, 7, 1}) {
        ServingSettings settings = settings_of({"cpu:1", "", {}});
        settings.step_tokens = step;
        settings.rows = 1;
        given.push_back(serve_alone(*core_of(model, settings), asked).tokens);
      }
      for (const Tokens& other : given) CHECK(other == given[0]);
    }
}

TEST_CASE("serving state: a text that goes on from a snapshot, a fork or a beginning has the tokens of its run alone") {
  for (const char* const model : kModels) {
    CAPTURE(std::string(model));
    TestServer server(model, settings_of({"cpu:1", "", {}}, 8, 128));
    TestServer alone(model, without_prefixes(settings_of({"cpu:1", "", {}}, 8, 128)));
    uint32_t seed = 9;
    const Tokens prompt = random_tokens(seed, 90, 96);
    const Tokens text = joined(prompt, server.serve({prompt, 30}));
    for (const size_t size : {120, 119, 100, 90, 64, 33, 9, 1}) {
      CAPTURE(size);
      const Tokens asked = joined(first(text, size), random_tokens(seed, 3, 96));
      CHECK(server.serve({asked, 12}) == alone.serve({asked, 12}));
    }
  }
}

TEST_CASE("serving state: the next turn computes its own tokens, and a common beginning is found where requests part") {
  ServingSettings settings = settings_of({"cpu:1", "", {}}, 8, 256);
  settings.snapshots = 16;
  TestServer server(kDelta, settings);
  uint32_t seed = 5;
  const Tokens prompt = random_tokens(seed, 90, 96);
  const Tokens text = joined(prompt, server.serve({prompt, 30}));
  int64_t before = server.counts().reused;
  server.serve({joined(text, {1, 2, 3}), 4});
  CHECK(server.counts().reused - before == std::ssize(text) - 1);  // all that was computed
  // The turn's answer is rendered otherwise: what follows the prompt is computed.
  before = server.counts().reused;
  server.serve({joined(first(prompt, 86), random_tokens(seed, 30, 96)), 4});
  CHECK(server.counts().reused - before == 80);  // 89 - 8, in units of 16
  // Three requests with one beginning: the second finds where the first two part, the third begins there.
  const Tokens common = random_tokens(seed, 57, 96);
  server.serve({joined(common, random_tokens(seed, 20, 96)), 2});
  server.serve({joined(common, random_tokens(seed, 20, 96)), 2});
  before = server.counts().reused;
  server.serve({joined(common, random_tokens(seed, 20, 96)), 2});
  CHECK(server.counts().reused - before >= std::ssize(common) - 1);
}

TEST_CASE("serving state: rows are not cleared, and what they held is not read") {
  for (const char* const model : kModels) {
    CAPTURE(std::string(model));
    const auto core = core_of(model, settings_of({"cpu:1", "", {}})), fresh = core_of(model, settings_of({"cpu:1", "", {}}));
    const Graph& step = *core->runner().record().entries.front().graph;
    const std::set<std::string> rows = row_states(step);
    REQUIRE(!rows.empty());
    for (const auto& [name, type] : core->runner().states()) {
      if (!rows.contains(name)) continue;
      const std::vector<float> poison(static_cast<size_t>(type.shape.elements()), std::numeric_limits<float>::quiet_NaN());
      const Status written = core->runner().session().write(name, HostTensor::copy_of<float>(type, poison));
      REQUIRE_MESSAGE(written.ok(), written.to_string());
    }
    const std::vector<Asked> asked = requests_alike(4, 8, {100, 50, 30});
    check_each_alone(*fresh, asked, serve(*core, asked));
  }
}

TEST_CASE("serving state: what cannot be kept with recurrent layers is refused by name") {
  ServingSettings settings = settings_of({"cpu:1", "", {}});
  settings.speculates = true;
  settings.draft = new_model(kDelta, 3);
  const auto drafted = ServingCore::create(new_runtime(), new_model(kDelta), settings);
  REQUIRE(!drafted.ok());
  CHECK(drafted.status().message().find("draft_model") != std::string::npos);
  settings = settings_of({"cpu:1", "", {}});
  settings.snapshots = 4;
  const auto plain = ServingCore::create(new_runtime(), new_model("llama:L=1,C=48,H=6,F=48,V=96,T=64"), settings);
  REQUIRE(!plain.ok());
  CHECK(plain.status().message().find("state_snapshots") != std::string::npos);
}

}  // namespace tessera::serving_tests
