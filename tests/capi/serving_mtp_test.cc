// Drafts by a model's own draft block: they change no token, are right where the block is, and are counted as others.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/capi/batched_serving.h"
#include "tests/capi/test_server.h"
#include "tests/full.h"

namespace tessera::serving_tests {

namespace {

constexpr const char* kDelta = "qwen3_5:L=4,C=48,H=6,KV=6,F=48,HS=12,GS=6,VS=5,KS=4,V=96,T=256,attention_every=2,MTP=1";
constexpr const char* kExperts = "qwen3_5moe:L=2,C=48,H=6,KV=6,F=16,E=4,K=2,FS=12,HS=6,GS=6,VS=8,KS=4,V=96,T=256,attention_every=2,MTP=1";
constexpr const char* kLatent =
    "deepseek2:L=2,C=48,H=6,D=12,R=4,KA=16,VD=8,F=16,FD=48,E=4,K=2,FS=16,V=96,T=256,expert_layers=0|1,expert_sigmoid,MTP=1,draft_tables";

ServingSettings drafting(ServingSettings settings) {
  settings.speculates = settings.always_speculates = settings.drafts_by_block = true;
  settings.max_drafts = 3;
  return settings;
}

std::unique_ptr<ServingCore> core_of(const char* model, const ServingSettings& settings) {
  return new_core(new_runtime(), new_model(model), settings);
}

void set(SharedModel& model, const std::string& name, const std::vector<float>& values) {
  const Model shown = model.snapshot();
  const TensorType& type = shown.graph.type(*shown.graph.find_tensor(name));
  REQUIRE(static_cast<int64_t>(values.size()) == type.shape.elements());
  REQUIRE(model.write(name, HostTensor::copy_of<float>(type, values)).ok());
}

constexpr size_t kTokens = 48;  // and channels

// [rows of `width`], of which `place(i)` has 1 in row i.
template <class Place>
std::vector<float> ones_at(size_t width, Place place) {
  std::vector<float> values(kTokens * width);
  for (size_t i = 0; i < kTokens; ++i) values[i * width + place(i)] = 1;
  return values;
}

// Embeddings are unit vectors, no block adds anything, and the likeliest token follows the last in a circle. The draft block reads
// the embedding alone, or the hidden state alone: it knows the next token in either case, and its own hidden states do.
std::shared_ptr<SharedModel> counting_model(bool reads_hidden) {
  const auto model =
      new_model("qwen3_5:L=2,C=48,H=6,KV=6,F=48,HS=12,GS=6,VS=5,KS=4,V=48,T=256,attention_every=2,MTP=1");
  const auto token_before = [](size_t i) { return (i + kTokens - 1) % kTokens; };
  for (const std::string& name : model->parameter_names())
    if (name.ends_with(".o") || name.ends_with(".down") || name.ends_with(".scan_out")) {
      const Model shown = model->snapshot();
      set(*model, name, std::vector<float>(static_cast<size_t>(shown.graph.type(*shown.graph.find_tensor(name)).shape.elements())));
    }
  set(*model, "token_embedding", ones_at(kTokens, [](size_t i) { return i; }));
  set(*model, "output", ones_at(kTokens, token_before));
  // Tokens come in a cycle. The projection gives the embedding of the token, from that itself or from the hidden state before it.
  set(*model, "draft.projection", reads_hidden ? ones_at(2 * kTokens, [&](size_t i) { return kTokens + token_before(i); })
                                               : ones_at(2 * kTokens, [](size_t i) { return i; }));
  return model;
}

}  // namespace

TEST_CASE("serving mtp: tokens are those without drafts, on any devices, and where pages run out") {
  int64_t drafted = 0, preemptions = 0, reused = 0;
  for (const char* const model : {kDelta, kExperts, kLatent})
    for (const ServingLayout& layout : {ServingLayout{"cpu:1", "", {}}, ServingLayout{"cpu:2", "tp=2", {}}}) {
      CAPTURE(std::string(model));
      CAPTURE(std::string(layout.parallel));
      ServingSettings plain = settings_of(layout, 8, 256);
      plain.shares_prefixes = false;
      const auto alone = core_of(model, plain);
      ServingSettings settings = drafting(settings_of(layout, 8, 256));
      settings.step_tokens = 24;
      const auto usual = core_of(model, settings);
      settings.pages = 256 / 8;
      settings.snapshots = model == kLatent ? -1 : 3;
      const auto few = core_of(model, settings);
      for (uint32_t mix = 0; mix < (test::full() ? 20 : 1); ++mix) {
        CAPTURE(mix);
        const std::vector<Asked> asked = requests_alike(mix, 12, {100, 50, 30}), growing = requests_alike(mix, 12, {30, 20, 120});
        check_each_alone(*alone, asked, serve(*usual, asked));
        check_each_alone(*alone, growing, serve(*few, growing));
      }
      drafted += usual->counts().drafted + few->counts().drafted;
      preemptions += few->counts().preemptions;
      reused += usual->counts().reused;
      CHECK(usual->counts().draft_seconds > 0);
      CHECK(!usual->draft_memory().empty());
    }
  CHECK(drafted > 0);
  CHECK(preemptions > 0);
  CHECK(reused > 0);
}

TEST_CASE("serving mtp: a block that knows the next token drafts right, by the embedding or by the hidden state") {
  for (const bool reads_hidden : {false, true})
    for (const char* const parallel : {"", "tp=2"}) {
      CAPTURE(reads_hidden);
      CAPTURE(parallel);
      const ServingLayout layout{*parallel != 0 ? "cpu:2" : "cpu:1", parallel, {}};
      const auto model = counting_model(reads_hidden);
      ServingSettings settings = settings_of(layout, 8, 256);
      const auto plain = new_core(new_runtime(), model, settings), speculative = new_core(new_runtime(), model, drafting(settings));
      std::vector<Asked> asked;
      for (const int32_t begin : {0, 7, 40}) {
        Tokens prompt;
        for (int32_t i = 0; i < 3 + 37 * (begin % 3); ++i) prompt.push_back((begin + i) % static_cast<int32_t>(kTokens));
        asked.push_back(greedy(prompt, 60));
      }
      const std::vector<Given> given = serve(*speculative, asked);
      CHECK(given == serve(*plain, asked));
      CHECK(given[0].tokens[0] == 3);
      const ServingCore::Counts counts = speculative->counts();
      CHECK(counts.drafted > 100);
      CHECK(counts.accepted == counts.drafted);
      CHECK(counts.steps * 2 < plain->counts().steps);
    }
}

TEST_CASE("serving mtp: a text whose beginning was cached is drafted by what comes after it") {
  const auto model = counting_model(true);
  const auto core = new_core(new_runtime(), model, drafting(settings_of({"cpu:1", "", {}}, 8, 256)));
  Tokens prompt;
  for (int32_t i = 0; i < 150; ++i) prompt.push_back(i % static_cast<int32_t>(kTokens));
  for (int turn = 0; turn < 3; ++turn) {
    const int64_t drafted = core->counts().drafted, accepted = core->counts().accepted;
    const Given given = serve_alone(*core, greedy(prompt, 20));
    CHECK(core->counts().drafted > drafted);
    CHECK(core->counts().accepted - accepted == core->counts().drafted - drafted);
    prompt.insert(prompt.end(), given.tokens.begin(), given.tokens.end());
  }
  CHECK(core->counts().reused > 250);
}

TEST_CASE("serving mtp: a server that is recovered after a failure drafts as before") {
  const auto core = core_of(kDelta, drafting(settings_of({"cpu:1", "", {}}, 8, 256)));
  const std::vector<Asked> asked = requests_alike(1, 6, {20, 20, 20});
  const std::vector<Given> wanted = serve(*core, asked);
  std::vector<ServingEvent> events;
  REQUIRE(core->recover(Status(StatusCode::kInternal, "lost"), events).ok());
  const std::vector<Given> again = serve(*core, asked);
  for (size_t i = 0; i < asked.size(); ++i)
    if (wanted[i].finish != ServingEvent::Finish::kCancelled) CHECK(again[i] == wanted[i]);
}

TEST_CASE("serving mtp: a model without a draft block is refused with the remedy") {
  const auto core = ServingCore::create(new_runtime(), new_model(kServedModel), drafting(settings_of({"cpu:1", "", {}})));
  REQUIRE(!core.ok());
  CAPTURE(core.status().to_string());
  CHECK(core.status().code() == StatusCode::kInvalidArgument);
  for (const char* const word : {"speculation", "mtp", "no block", "ngram"})
    CHECK(core.status().message().find(word) != std::string_view::npos);
}

}  // namespace tessera::serving_tests
