// Multi-head latent attention: pages hold each token's latent vector and the rotated part of its key, nothing else. A request
// yields the same as alone, and the tokens of a generator, whose cache has keys and values of every head.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "graph/transform/row_adapters.h"
#include "tests/capi/batched_serving.h"
#include "tests/capi/test_server.h"
#include "tests/full.h"

namespace tessera::serving_tests {

namespace {

constexpr const char* kLatentModel =
    "deepseek2:L=2,C=48,H=4,D=24,R=8,KA=24,VD=12,F=24,FD=48,E=4,K=2,FS=24,V=96,T=256,expert_layers=0|1";
// Queries of a latent vector, too, and scores scaled as long contexts want it.
constexpr const char* kNarrowQueries =
    "deepseek2:L=2,C=48,H=3,D=16,R=4,KA=20,QA=12,F=24,E=4,K=2,FS=24,V=96,T=256,expert_sigmoid,"
    "attention_scale=0.4,rope_rows=1";
constexpr int64_t kLayers = 2, kWidth = 24 + 8;  // of kLatentModel: numbers of a token in a layer

std::unique_ptr<ServingCore> latent_core(const char* model, const ServingSettings& settings) {
  return new_core(new_runtime(), new_model(model), settings);
}

int64_t page_state_bytes(ServingCore& core) {
  int64_t sum = 0;
  for (const auto& [name, type] : core.runner().states())
    if (!is_adapter_state(name)) sum += bytes(type);
  return sum;
}

std::vector<std::string> page_states(ServingCore& core) {
  std::vector<std::string> names;
  for (const auto& [name, type] : core.runner().states())
    if (!is_adapter_state(name)) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

}  // namespace

TEST_CASE("serving latent: tokens are those of each request alone, on any devices, and where pages run out") {
  int64_t preemptions = 0;
  for (const char* const model : {kLatentModel, kNarrowQueries})
    for (const ServingLayout& layout :
         {ServingLayout{"cpu:1", "", {}}, ServingLayout{"cpu:2", "tp=2", {}},
          ServingLayout{"cpu:2", "pp=2", {}}, ServingLayout{"cpu:3", "tp=3", DType::kF16},
          ServingLayout{"cpu:1", "", DType::kBF16}}) {
      if (model == kNarrowQueries && !test::full() && layout.devices != std::string("cpu:1")) continue;
      CAPTURE(std::string(model));
      CAPTURE(std::string(layout.devices));
      for (const int64_t page_size : {8, 64}) {
        const auto alone = latent_core(model, settings_of(layout, page_size, 4 * 256 / page_size));
        const auto few = latent_core(model, settings_of(layout, page_size, 256 / page_size));
        for (uint32_t mix = 0; mix < (test::full() ? 10 : 1); ++mix)
          check_each_alone(*alone, requests_alike(mix, 12, {100, 50, 30}),
                           serve(*few, requests_alike(mix, 12, {100, 50, 30})));
        preemptions += few->counts().preemptions;
      }
    }
  CHECK(preemptions > 0);
}

TEST_CASE(
    "serving latent: weights of 16 bits and of blocks keep the latent, with the same bits in any batch") {
  for (const char* const weights : {"bf16", "q8_0"})
    for (const char* const devices : {"cpu:1", "cpu:2"}) {
      CAPTURE(std::string(weights));
      // Rows of whole blocks: 32 numbers of the latent, and of what makes it.
      const char* const model = "deepseek2:L=1,C=64,H=4,D=40,R=8,KA=32,VD=32,F=64,E=4,K=2,FS=64,V=96,T=256";
      ServingSettings settings = settings_of({devices, devices == std::string("cpu:2") ? "tp=2" : "", {}});
      settings.inference.weights = dtype_from_name(weights);
      const auto core = latent_core(model, settings);
      CHECK(page_states(*core) == std::vector<std::string>{"block.0.attention.latent_pages"});
      const std::vector<Asked> asked = requests_alike(4, 8, {100, 50, 30});
      check_each_alone(*core, asked, serve(*core, asked));
    }
}

TEST_CASE("serving latent: greedy tokens are those of a generator, and no others of a draft") {
  const auto runtime = new_runtime();
  for (const char* const description : {kLatentModel, kNarrowQueries}) {
    const auto model = new_model(description);
    const auto generator = new_generator(runtime, model);
    ServingSettings settings = settings_of({"cpu:1", "", {}});
    const auto plain = new_core(runtime, model, settings);
    settings.speculates = settings.always_speculates = true;
    const auto speculative = new_core(runtime, model, settings);
    settings.draft = new_model(description, 3);
    const auto drafting = new_core(runtime, model, settings);
    uint32_t seed = 5;
    for (const int64_t size : {1, 40, 130}) {
      CAPTURE(size);
      const Asked asked = greedy(random_tokens(seed, size, 96), 20);
      const Tokens wanted = generated(*generator, asked);
      for (ServingCore* const core : {plain.get(), speculative.get(), drafting.get()})
        CHECK(serve_alone(*core, asked).tokens == wanted);
    }
  }
}

TEST_CASE("serving latent: forks, rewinds and restored sequences go on as texts of their own do") {
  const capi_test::Scratch folder;
  const std::string path = folder / "latent";
  const ServingLayout layouts[] = {{"cpu:1", "", {}}, {"cpu:2", "tp=2", {}}, {"cpu:2", "pp=2", DType::kQ8_0}};
  for (const ServingLayout& layout : layouts) {
    CAPTURE(std::string(layout.parallel));
    const ServingSettings settings = settings_of(layout);
    TestServer server(kLatentModel, settings);
    uint32_t seed = 9;
    const Tokens prompt = random_tokens(seed, 90, 96);
    const Tokens text = joined(prompt, server.serve({prompt, 30}));
    for (const size_t size : {120, 119, 64, 33, 1}) {
      CAPTURE(size);
      const Tokens asked = joined(first(text, size), random_tokens(seed, 3, 96));
      CHECK(server.serve({asked, 12}) == server.serve_alone({asked, 12}));
    }
    REQUIRE(server.core().save_sequence(text, 0, path).ok());
    // Pages are whole on every device, so that a file fits other plans.
    const auto file = SequenceFileReader::open(path);
    REQUIRE(file.ok());
    REQUIRE(file->header().states.size() == kLayers);
    for (const PageState& state : file->header().states) {
      CHECK(state.heads == 1);
      CHECK(state.width == kWidth);
    }
    const Tokens more = joined(text, {1, 2, 3});
    const Tokens wanted = server.serve_alone({more, 8});
    for (const ServingLayout& into : layouts) {
      if (into.cache != layout.cache) continue;
      TestServer other(kLatentModel, settings_of(into, 64, 64));
      const auto restored = other.core().restore_sequence(path);
      REQUIRE_MESSAGE(restored.ok(), restored.status().to_string());
      CHECK(other.serve({more, 8}) == wanted);
      CHECK(other.counts().reused == file->header().cached);
    }
  }
}

TEST_CASE("serving latent: a token takes the bytes of its latent vectors, and pages fill a memory limit") {
  constexpr int64_t kPageBytes = 8 * kLayers * kWidth;              // numbers of a page
  ServingSettings settings = settings_of({"cpu:1", "", {}}, 8, 0);  // 4 sequences of 256
  const auto all = latent_core(kLatentModel, settings);
  CHECK(page_states(*all) ==
        std::vector<std::string>{"block.0.attention.latent_pages", "block.1.attention.latent_pages"});
  CHECK(page_state_bytes(*all) == 128 * kPageBytes * 4);
  for (const auto& [type, bytes] :
       {std::pair(DType::kF16, 2 * kPageBytes), std::pair(DType::kQ8_0, kPageBytes / 32 * 34)}) {
    settings.cache = type;
    CHECK(page_state_bytes(*latent_core(kLatentModel, settings)) == 128 * bytes);
  }
  settings.cache = {};
  const auto arena_of = [](ServingCore& it) {
    return it.runner().prepared()->executable->program().ranks[0].arena_bytes;
  };
  settings.compute.memory_limit = arena_of(*all) - 3 * kPageBytes * 4;
  const auto fitted = latent_core(kLatentModel, settings);
  CHECK(arena_of(*fitted) <= settings.compute.memory_limit);
  CHECK(arena_of(*fitted) + kPageBytes * 4 + 256 > settings.compute.memory_limit);
  CHECK(fitted->counts().pages == 125);

  settings = settings_of({"cpu:1", "", DType::kQ8_0});
  const auto refused = ServingCore::create(new_runtime(), new_model(kNarrowQueries), settings);
  REQUIRE_FALSE(refused.ok());
  CHECK(std::string(refused.status().message())
            .find("its latent vectors with the rotated part of keys are 24 wide, and pages of q8_0 hold "
                  "blocks of 32") != std::string::npos);
}

TEST_CASE(
    "serving latent: with adapters of requests keys and values are cached, and a file of the other form is "
    "refused") {
  ServingSettings settings = settings_of({"cpu:1", "", {}});
  settings.adapters = 2;
  settings.adapter_rank = 4;
  TestServer expanded(kLatentModel, settings), latent(kLatentModel, settings_of({"cpu:1", "", {}}));
  CHECK(page_states(expanded.core()).size() == 2 * kLayers);
  uint32_t seed = 2;
  const Tokens prompt = random_tokens(seed, 40, 96);
  const capi_test::Scratch folder;
  REQUIRE(expanded.core()
              .save_sequence(joined(prompt, expanded.serve({prompt, 8})), 0, folder / "expanded")
              .ok());
  const auto restored = latent.core().restore_sequence(folder / "expanded");
  REQUIRE_FALSE(restored.ok());
  CHECK(std::string(restored.status().message())
            .find("it has keys or values 'block.0.attention.k_pages' f32[4, 24], wanted "
                  "'block.0.attention.latent_pages' f32[1, 32]") != std::string::npos);
}

}  // namespace tessera::serving_tests
