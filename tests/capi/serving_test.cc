// Serving: what a request yields does not depend on who else is served, on preemption, or on pages that are shared; and no
// page is lost.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/serving/scheduler/serving_core.h"
#include "tests/capi/batched_serving.h"
#include "tests/capi/random_adapter.h"
#include "tests/full.h"
#include "text/grammar/mask_cache.h"

namespace tessera {
namespace {

using serving_tests::Asked, serving_tests::Given, serving_tests::next;
using serving_tests::kBlockModel, serving_tests::kServedModel;
using serving_tests::new_core, serving_tests::new_model, serving_tests::new_runtime;
using serving_tests::serve, serving_tests::check_each_alone;

// A vocabulary of single characters and a few pairs; the last token ends a text.
const std::vector<std::shared_ptr<grammar::MaskCache>>& grammars() {
  static const auto made = [] {
    std::vector<std::string> tokens;
    for (int i = 0; i < 90; ++i) tokens.emplace_back(1, static_cast<char>(' ' + i));
    for (const char* pair : {"ab", "12", "[]", "0.", ", "}) tokens.emplace_back(pair);
    tokens.emplace_back();
    const auto bytes = grammar::TokenBytes::create(std::move(tokens), {95});
    REQUIRE(bytes.ok());
    std::vector<std::shared_ptr<grammar::MaskCache>> caches;
    for (const auto& grammar :
         {grammar::Grammar::from_regex("[ab]+(12|3)[0-9]*"), grammar::Grammar::json(),
          grammar::Grammar::from_choices(std::vector<std::string>{"ab12", "ab3", "b"})}) {
      REQUIRE(grammar.ok());
      caches.push_back(std::make_shared<grammar::MaskCache>(*grammar, *bytes));
    }
    return caches;
  }();
  return made;
}

std::vector<Asked> random_requests(uint32_t seed, size_t count, int64_t vocabulary, bool cancels,
                                   int64_t adapters = 0) {
  std::vector<int32_t> common;
  for (int i = 0; i < 150; ++i) common.push_back(static_cast<int32_t>(next(seed) % vocabulary));
  std::vector<Asked> asked(count);
  for (Asked& it : asked) {
    const size_t shared = next(seed) % 2 == 0 ? next(seed) % common.size() : 0;
    it.prompt.assign(common.begin(), common.begin() + shared);
    for (size_t own = 1 + next(seed) % 40; own > 0; --own)
      it.prompt.push_back(static_cast<int32_t>(next(seed) % vocabulary));
    it.sampling.max_tokens = 1 + next(seed) % 30;
    it.sampling.temperature = next(seed) % 3 == 0 ? 0 : 0.9;
    if (next(seed) % 2 == 0) it.sampling.top_k = 5;
    if (next(seed) % 3 == 0) it.sampling.repetition_penalty = 1.3;
    it.seed = next(seed);
    it.priority = static_cast<int32_t>(next(seed) % 3);
    it.arrives = next(seed) % 20;
    if (next(seed) % 4 == 0) {
      it.grammar = grammars()[next(seed) % grammars().size()];
      it.sampling.stop_ids = {95};
    }
    if (adapters > 0) it.adapter = static_cast<int64_t>(next(seed) % static_cast<uint32_t>(adapters + 1)) - 1;
    if (cancels && next(seed) % 6 == 0) it.cancelled = it.arrives + next(seed) % 20;
  }
  return asked;
}

}  // namespace

TEST_CASE("serving: each request's tokens are those of its run alone, in any company") {
  const uint32_t mixes = test::full() ? 125 : 5;  // of each form
  const auto runtime = new_runtime();
  const auto model = new_model(kServedModel);
  for (const auto& layout : serving_tests::kTogetherLayouts) {
    CAPTURE(layout.parallel);
    ServingSettings settings = serving_tests::settings_on(layout);
    settings.rows = 5;
    settings.adapters = 2;
    settings.adapter_rank = 4;
    const auto alone = new_core(runtime, model, settings);
    settings.pages = 9;  // of 20: sequences preempt each other
    settings.speculates = true;
    const auto core = new_core(runtime, model, settings);
    for (uint32_t i = 0; i < 3; ++i)  // more than there are slots
      for (ServingCore* it : {alone.get(), core.get()})
        REQUIRE(it->load_adapter(*with_adapter(model, i, 4)).ok());
    for (uint32_t seed = 1; seed <= mixes; ++seed) {
      CAPTURE(seed);
      const std::vector<Asked> asked = random_requests(seed, 14, 96, true, 3);
      const std::vector<Given> batched = serve(*core, asked);
      check_each_alone(*alone, asked, batched);
    }
    CHECK(core->counts().preemptions > 0);
    CHECK(core->counts().adapters_written > 3);
    CHECK(core->counts().reused > 0);
  }
}

TEST_CASE("serving: the same over weights of blocks and keys and values of 16 and 8 bits") {
  const auto runtime = new_runtime();
  const auto model = new_model("llama:L=2,C=64,H=2,KV=1,F=96,V=96,T=256");
  for (const DType weights : {DType::kQ8_0, DType::kQ4_0, DType::kBF16})
    for (const auto cache : {std::optional<DType>(), std::optional(DType::kBF16), std::optional(DType::kF16),
                             std::optional(DType::kQ8_0)}) {
      CAPTURE(to_text(weights));
      ServingSettings settings;
      settings.inference.weights = weights;
      settings.cache = cache;
      settings.rows = 5;
      const auto alone = new_core(runtime, model, settings);
      settings.pages = 8;
      const auto core = new_core(runtime, model, settings);
      const std::vector<Asked> asked = random_requests(3, 10, 96, false);
      const std::vector<Given> batched = serve(*core, asked);
      check_each_alone(*alone, asked, batched);
    }
}

TEST_CASE("serving: keys and values of 8 bits on any layout, with drafts and a draft model") {
  const auto runtime = new_runtime();
  const auto model = new_model(kBlockModel);
  for (const auto& layout : serving_tests::kTogetherLayouts) {
    CAPTURE(layout.parallel);
    ServingSettings settings = serving_tests::settings_on(layout);
    settings.cache = DType::kQ8_0;
    settings.rows = 5;
    const auto alone = new_core(runtime, model, settings);
    settings.pages = 9;  // of 20
    settings.speculates = true;
    if (layout.parallel[0] == '\0') settings.draft = new_model("llama:L=1,C=32,H=1,F=32,V=96,T=256", 1);
    const auto core = new_core(runtime, model, settings);
    const std::vector<Asked> asked = random_requests(4, 14, 96, true);
    const std::vector<Given> batched = serve(*core, asked);
    check_each_alone(*alone, asked, batched);
    CHECK(core->counts().reused > 0);
  }
}

TEST_CASE("serving: heads that are not whole blocks are refused by name, the model's and a draft's") {
  const auto runtime = new_runtime();
  ServingSettings settings;
  settings.cache = DType::kQ8_0;
  const auto refusal = [&](const char* description) {
    const auto core = ServingCore::create(runtime, new_model(description), settings);
    REQUIRE(!core.ok());
    CHECK(core.status().code() == StatusCode::kInvalidArgument);
    return core.status().to_string();
  };
  const std::string own = refusal("llama:L=1,C=48,H=2,F=48,V=96,T=256");
  CHECK_MESSAGE(
      own.find("its keys are 24 wide, and pages of q8_0 hold blocks of 32 numbers") != std::string::npos,
      own);
  CHECK_MESSAGE(own.find("cache_type model, f16 or bf16") != std::string::npos, own);
  settings.draft = new_model("llama:L=1,C=48,H=2,F=48,V=96,T=256");
  const std::string of_draft = refusal(kBlockModel);
  CHECK_MESSAGE(of_draft.find("the draft model: ") != std::string::npos, of_draft);
  CHECK_MESSAGE(of_draft.find("its keys are 24 wide") != std::string::npos, of_draft);
}

TEST_CASE("serving: a request's text is a generator's") {
  const auto runtime = new_runtime();
  const auto model = new_model(kServedModel);
  const auto core = new_core(runtime, model, {});
  const auto generator = serving_tests::new_generator(runtime, model);
  for (Asked& asked : random_requests(11, 6, 96, false)) {
    asked.arrives = 0;
    asked.grammar = nullptr;
    asked.sampling.stop_ids.clear();
    asked.sampling.repetition_penalty = 1;  // which generators do not have
    CHECK(serving_tests::generated(*generator, asked) == serve(*core, {asked})[0].tokens);
  }
}

TEST_CASE("serving: a common beginning is computed once") {
  const auto runtime = new_runtime();
  const auto model = new_model("llama:L=1,C=32,H=2,F=48,V=96,T=256");
  ServingSettings settings;
  settings.rows = 4;
  const auto core = new_core(runtime, model, settings);
  uint32_t seed = 7;
  Asked first;
  for (int i = 0; i < 150; ++i) first.prompt.push_back(static_cast<int32_t>(next(seed) % 96));
  first.sampling.max_tokens = 4;
  first.sampling.temperature = 0;
  serve(*core, {first});
  const int64_t before = core->counts().tokens;
  Asked second = first;
  second.prompt.push_back(5);
  serve(*core, {second});
  // The last of the 151 tokens is computed; then four more, of which the last is not.
  CHECK(core->counts().reused == 150);
  CHECK(core->counts().tokens - before == 1 + 3);
}

TEST_CASE("serving: a memory limit is filled with pages, and kept to the byte") {
  const auto runtime = new_runtime();
  struct Limited {
    const char *description, *devices, *parallel;
    std::optional<DType> cache;
  };
  for (const auto& [description, devices, parallel, cache] :
       {Limited{kServedModel, "cpu:1", "", {}}, Limited{kServedModel, "cpu:2", "tp=2", {}},
        Limited{kServedModel, "cpu:2", "pp=2", {}}, Limited{kBlockModel, "cpu:1", "", DType::kQ8_0},
        Limited{kBlockModel, "cpu:2", "tp=2", DType::kQ8_0}}) {
    CAPTURE(parallel);
    const auto model = new_model(description);
    ServingSettings settings;
    settings.cache = cache;
    settings.compute.devices = devices;
    settings.compute.parallel = parallel;
    const auto memory = [](ServingCore& core) {
      int64_t most = 0;
      for (const MemoryReport& device : core.runner().session().memory())
        most = std::max(most, device.predicted_bytes);
      return most;
    };
    const auto all = new_core(runtime, model, settings);
    CHECK(all->counts().pages == 16 * 4);
    settings.pages = 20;
    const int64_t limit = memory(*new_core(runtime, model, settings));
    settings.pages = 0;
    settings.compute.memory_limit = limit;
    const auto limited = new_core(runtime, model, settings);
    CHECK(limited->counts().pages == 20);
    CHECK(memory(*limited) == limit);
    settings.compute.memory_limit = limit - 1;
    CHECK(new_core(runtime, model, settings)->counts().pages == 19);
    settings.compute.memory_limit = 1000;
    CHECK(ServingCore::create(runtime, model, settings).status().code() == StatusCode::kOutOfMemory);
  }
}

TEST_CASE("serving: requests that cannot be served are refused, the others unharmed") {
  const auto runtime = new_runtime();
  const auto model = new_model("llama:L=1,C=32,H=2,F=48,V=96,T=128");
  ServingSettings settings;
  settings.rows = 2;
  const auto core = new_core(runtime, model, settings);
  const auto refusal = [&](std::vector<int32_t> prompt) {
    Asked asked;
    asked.prompt = std::move(prompt);
    return std::string(core->make_texts(serving_tests::request_of(asked), 0).status().message());
  };
  CHECK(refusal({}).find("at least one token") != std::string::npos);
  CHECK(refusal({1, 96}).find("token id 96") != std::string::npos);
  CHECK(refusal(std::vector<int32_t>(128, 1)).find("128 tokens") != std::string::npos);
  Asked fine;
  fine.prompt = {1, 2, 3};
  fine.sampling.max_tokens = 3;
  CHECK(serve(*core, {fine})[0].tokens.size() == 3);
}

}  // namespace tessera
