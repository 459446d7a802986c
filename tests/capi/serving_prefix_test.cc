// Prefixes that pages hold already, to the token: what is computed, what is shared or copied, and that results have the
// bits of computing everything.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/test_server.h"
#include "tests/full.h"

namespace tessera::serving_tests {

TEST_CASE("prefixes: every length around page borders is found to the token, with the bits of computing it") {
  for (const ServingLayout& layout : kServingLayouts) {
    CAPTURE(std::string(layout.parallel));
    TestServer server(layout.model, settings_of(layout));
    uint32_t seed = 3;
    const Tokens base = random_tokens(seed, 27, 48);
    server.serve({base, 1});  // whose token is not computed
    int64_t copied = 0;
    for (size_t shared = 0; shared <= base.size(); ++shared) {
      CAPTURE(shared);
      // No other prompt goes on like this one.
      Tokens prompt = first(base, shared);
      prompt.push_back(static_cast<int32_t>(48 + shared));
      for (const int32_t token : random_tokens(seed, 5, 48)) prompt.push_back(token);
      const ServingCore::Counts before = server.counts();
      const Tokens given = server.serve({prompt, 4});
      const ServingCore::Counts after = server.counts();
      const auto reused = static_cast<int64_t>(shared);
      CHECK(after.reused - before.reused == reused);
      CHECK(after.tokens - before.tokens == std::ssize(prompt) - reused + 3);
      copied += after.copied - before.copied;
      CHECK(given == server.serve_alone({prompt, 4}));
    }
    CHECK(copied > 0);
  }
}

TEST_CASE("prefixes: a prompt that is known as a whole computes its last token alone") {
  TestServer server(kServedModel, settings_of(kServingLayouts[0]));
  uint32_t seed = 9;
  for (const size_t size : {7, 8, 9, 15, 16, 17, 24}) {
    CAPTURE(size);
    const Tokens prompt = random_tokens(seed, size, 96);
    const Tokens given = server.serve({prompt, 4});
    const int64_t before = server.counts().tokens;
    CHECK(server.serve({prompt, 4}) == given);
    CHECK(server.counts().tokens - before == 1 + 3);
  }
}

TEST_CASE("prefixes: two that go on from one page at once each have it as it was") {
  for (const ServingLayout& layout : kServingLayouts) {
    CAPTURE(std::string(layout.parallel));
    TestServer server(layout.model, settings_of(layout));
    uint32_t seed = 4;
    const Tokens base = random_tokens(seed, 21, 96);
    server.serve({base, 1});  // 16 tokens in full pages, 5 in the last one
    std::vector<Asking> asked;
    for (int i = 0; i < 3; ++i) asked.push_back({joined(base, random_tokens(seed, 6, 96)), 8});
    const ServingCore::Counts before = server.counts();
    std::vector<int64_t> numbers;
    for (const Asking& it : asked) numbers.push_back(server.submit(it));
    server.finish();
    const ServingCore::Counts after = server.counts();
    CHECK(after.reused - before.reused == 3 * 21);
    CHECK(after.copied - before.copied == 2 * 5);  // the first one writes on in the page itself
    CHECK(after.tokens - before.tokens == 3 * (6 + 7));
    for (size_t i = 0; i < asked.size(); ++i) {
      const Tokens given = server.given(numbers[i]), text = joined(asked[i].prompt, given);
      CHECK(given == server.serve_alone(asked[i]));
      if (i != 1) continue;
      const std::vector<std::byte> rows = server.rows(text, 0);
      CHECK(rows.size() > 0);
      CHECK(rows == server.rows(text, server.last_root()));
    }
  }
}

TEST_CASE("prefixes: where there is no page for a copy the page is written on") {
  TestServer server(kServedModel, settings_of(kServingLayouts[0], 8, 4));
  uint32_t seed = 5;
  const Tokens base = random_tokens(seed, 20, 48);
  server.serve({base, 1});
  Tokens prompt = first(base, 18);
  for (int32_t token = 50; token < 58; ++token) prompt.push_back(token);
  const ServingCore::Counts before = server.counts();
  const Tokens given = server.serve({prompt, 4});
  CHECK(server.counts().reused - before.reused == 18);
  CHECK(server.counts().copied == before.copied);
  CHECK(server.serve({base, 1}).size() == 1);  // 18 tokens of it are known still, and no more
  CHECK(server.counts().reused - before.reused == 18 + 18);
  CHECK(given == server.serve_alone({prompt, 4}));
}

TEST_CASE("prefixes: texts of other roots have no page in common") {
  TestServer server(kServedModel, settings_of(kServingLayouts[0]));
  uint32_t seed = 6;
  const Tokens prompt = random_tokens(seed, 30, 96);
  for (const uint64_t root : {uint64_t{0}, uint64_t{1}, uint64_t{2}, ~uint64_t{0}}) {
    server.serve({prompt, 4, root});
    CHECK(server.counts().reused == 0);
  }
  server.serve({prompt, 4, 1});
  CHECK(server.counts().reused == 29);
}

TEST_CASE("prefixes: what sixteen requests that arrive together begin with is computed once") {
  ServingSettings settings;
  settings.rows = 16;
  settings.pages = 40;
  TestServer server("llama:L=1,C=32,H=2,F=48,V=96,T=1100", settings);
  uint32_t seed = 7;
  const Tokens common = random_tokens(seed, 1000, 96);
  std::vector<Asking> asked;
  for (int32_t i = 0; i < 16; ++i)
    asked.push_back({joined(joined(common, {i}), random_tokens(seed, 9, 96)), 3});
  std::vector<int64_t> numbers;
  for (const Asking& it : asked) numbers.push_back(server.submit(it));
  server.finish();
  CHECK(server.counts().tokens == 1000 + 16 * (10 + 2));
  CHECK(server.counts().reused == 15 * 1000);
  CHECK(server.counts().preemptions == 0);
  for (size_t i = 0; i < 16; i += 5) CHECK(server.given(numbers[i]) == server.serve_alone(asked[i]));
}

TEST_CASE("prefixes: those who wait for another's tokens let others pass and go on when it ends") {
  uint32_t seed = 8;
  const Tokens common = random_tokens(seed, 120, 96);
  const Asking leader{joined(common, {1, 2}), 6}, follower{joined(common, {3, 4}), 6},
      stranger{random_tokens(seed, 20, 96), 6};
  for (const int cancelled_at : {-1, 0, 1, 2, 3, 4}) {
    CAPTURE(cancelled_at);
    ServingSettings settings = settings_of(kServingLayouts[0]);
    settings.step_tokens = 50;
    TestServer server(kServedModel, settings);
    const int64_t led = server.submit(leader), followed = server.submit(follower),
                  strange = server.submit(stranger);
    for (int step = 0; step < 5; ++step) {
      if (step == cancelled_at) server.cancel(led);
      server.step();
      if (step == 2 && cancelled_at < 0) {  // 122 tokens of 50 a step
        CHECK(server.counts().waiting == 1);
        CHECK(server.counts().running == 2);
      }
    }
    server.finish();
    CHECK(server.given(followed) == server.serve_alone(follower));
    CHECK(server.given(strange) == server.serve_alone(stranger));
    if (cancelled_at < 0) CHECK(server.given(led) == server.serve_alone(leader));
  }
}

TEST_CASE("prefixes: a request does not wait for one that matters less") {
  uint32_t seed = 10;
  const Tokens common = random_tokens(seed, 120, 96);
  ServingSettings settings = settings_of(kServingLayouts[0]);
  TestServer server(kServedModel, settings);
  server.submit({joined(common, {1}), 2, 0, 0});
  const Asking urgent{joined(common, {2}), 2, 0, 1};
  server.step();
  server.step();
  const int64_t number = server.submit(urgent);
  server.step();  // the last 25 tokens of the first one, and some of this one
  CHECK(server.counts().running == 2);
  server.finish();
  CHECK(server.given(number) == server.serve_alone(urgent));
}

TEST_CASE("prefixes: each turn of a conversation computes its new tokens and the last one before") {
  TestServer server(kServedModel, settings_of(kServingLayouts[0]));
  uint32_t seed = 11;
  Tokens text;
  for (int turn = 0; turn < 10; ++turn) {
    CAPTURE(turn);
    const int64_t count = 3 + turn % 4;
    const Tokens said = random_tokens(seed, 4 + next(seed) % 9, 96);
    text = joined(text, said);
    const ServingCore::Counts before = server.counts();
    const Tokens answer = server.serve({text, count});
    const int64_t computed = server.counts().tokens - before.tokens;
    CHECK(computed == std::ssize(said) + (turn > 0 ? 1 : 0) + count - 1);
    CHECK(server.counts().copied == 0);
    text = joined(text, answer);
  }
}

TEST_CASE("prefixes: pages are copied, read and written on every device for itself, with nothing sent") {
  for (const ServingLayout& layout :
       {ServingLayout{"cpu:2", "tp=2", {}}, ServingLayout{"cpu:3", "tp=3", {}},
        ServingLayout{"cpu:2", "pp=2", {}}, ServingLayout{"cpu:4", "tp=2,pp=2", {}},
        ServingLayout{"cpu:3", "tp=3", DType::kQ8_0, kBlockModel}}) {
    const std::string parallel = layout.parallel;
    CAPTURE(parallel);
    TestServer server(layout.model, settings_of(layout));
    size_t kernels = 0;
    for (const RankProgram& rank : server.core().runner().prepared()->executable->program().ranks)
      for (const EntryPoint& entry : rank.entries) {
        if (!entry.name.starts_with("pages.")) continue;
        kernels += entry.code.size();
        CHECK(!entry.code.empty());
        for (const Instruction& it : entry.code) CHECK(std::holds_alternative<KernelInst>(it));
      }
    // Kernels for keys and values in two layers, on each rank with a part: two copy, one reads and one writes.
    const size_t parts = parallel == "tp=3" ? 3 : parallel[0] == 't' ? 2 : 1;
    CHECK(kernels == parts * 4 * (2 + 1 + 1));
  }
}

TEST_CASE("prefixes: in random mixes, also with files, each has the tokens of its run alone") {
  const uint32_t mixes = test::full() ? 60 : 3;  // of each layout
  const capi_test::Scratch folder;
  for (const ServingLayout& layout : kServingLayouts) {
    CAPTURE(std::string(layout.parallel));
    TestServer server(layout.model, settings_of(layout, 8, 30));
    TestServer alone(layout.model, settings_of(layout, 8, 512));
    for (uint32_t mix = 0; mix < mixes; ++mix) {
      CAPTURE(mix);
      uint32_t seed = 100 + mix;
      std::vector<Tokens> texts = {random_tokens(seed, 60, 96), random_tokens(seed, 100, 96)};
      std::map<int64_t, Asking> asked;
      std::vector<int64_t> cancelled;
      while (asked.size() < 24) {
        const Tokens& text = texts[next(seed) % texts.size()];
        Asking it{joined(first(text, next(seed) % text.size()), random_tokens(seed, 1 + next(seed) % 12, 96)),
                  1 + next(seed) % 20, next(seed) % 2, static_cast<int32_t>(next(seed) % 3)};
        const int64_t number = server.submit(it);
        asked.emplace(number, it);
        if (next(seed) % 8 == 0) server.cancel(number), cancelled.push_back(number);
        for (uint32_t steps = next(seed) % 4; steps > 0; --steps) server.step();
        const Tokens now = joined(it.prompt, server.given(number));
        if (now.size() < 200) texts.push_back(now);
        if (next(seed) % 8 == 0) server.cancel(number), cancelled.push_back(number);
        if (mix % 3 > 0) continue;  // files are synced, which takes longest
        if (asked.size() == 12) REQUIRE(server.core().save_sequence(now, it.root, folder / "text").ok());
        if (asked.size() == 18) REQUIRE(server.core().restore_sequence(folder / "text").ok());
      }
      server.finish();
      for (const auto& [number, it] : asked) {
        const Tokens wanted = alone.serve_alone(it), given = server.given(number);
        if (std::ranges::find(cancelled, number) == cancelled.end())
          CHECK(given == wanted);
        else
          CHECK(std::ranges::equal(given, std::span(wanted).first(std::min(given.size(), wanted.size()))));
      }
    }
    CHECK(server.counts().preemptions > 0);
    CHECK(server.counts().copied > 0);
  }
}

}  // namespace tessera::serving_tests
