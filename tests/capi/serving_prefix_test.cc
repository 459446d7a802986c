// Prefixes that pages hold already, to the token: what is computed, what is shared or copied, and that results have the
// bits of computing everything.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capi/engine/serving/serving_core.h"

namespace tessera {
namespace {

using Tokens = std::vector<int32_t>;

uint32_t next(uint32_t& seed) { return (seed = seed * 1664525u + 1013904223u) >> 8; }

Tokens random_tokens(uint32_t& seed, size_t count, uint32_t vocabulary) {
  Tokens tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(next(seed) % vocabulary);
  return tokens;
}

Tokens joined(Tokens tokens, const Tokens& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

Tokens first(const Tokens& tokens, size_t count) { return Tokens(tokens.begin(), tokens.begin() + count); }

struct Asked {
  Tokens prompt;
  int64_t count = 4;  // tokens wanted
  uint64_t root = 0;
  int32_t priority = 0;
};

class Server {
 public:
  Server(const char* description, const ServingSettings& settings) {
    auto runtime = Runtime::create({});
    REQUIRE(runtime.ok());
    auto model = SharedModel::describe(description, {});
    REQUIRE(model.ok());
    auto core = ServingCore::create(*runtime, *model, settings);
    REQUIRE_MESSAGE(core.ok(), core.status().to_string());
    core_ = std::move(*core);
  }

  ServingCore& core() { return *core_; }
  void cancel(int64_t number) {
    std::vector<ServingEvent> events;
    core_->cancel(number, events);
  }
  ServingCore::Counts counts() const { return core_->counts(); }

  int64_t submit(const Asked& asked) {
    const auto sampling = std::make_shared<SamplingSettings>();
    sampling->max_tokens = asked.count;
    sampling->temperature = 0.9;
    ServingRequest request;
    request.prompt = asked.prompt;
    request.sampling = sampling;
    request.seed = 5;
    request.priority = asked.priority;
    request.root = asked.root;
    auto texts = core_->make_texts(request, next_request_);
    REQUIRE_MESSAGE(texts.ok(), texts.status().to_string());
    core_->add(std::move(*texts));
    given_[next_request_];
    return next_request_++;
  }

  bool step() {
    std::vector<ServingEvent> events;
    const auto more = core_->step(events);
    REQUIRE_MESSAGE(more.ok(), more.status().to_string());
    for (const ServingEvent& event : events)
      if (event.kind == ServingEvent::Kind::kToken) given_[event.request].push_back(event.token);
    return *more;
  }

  void finish() {
    int steps = 0;
    while (step()) REQUIRE(++steps < 10000);
    const ServingCore::Counts counts = core_->counts();
    CHECK(counts.running == 0);
    CHECK(counts.waiting == 0);
    CHECK(counts.free_pages == counts.pages);  // none is lost
  }

  Tokens given(int64_t number) const { return given_.at(number); }

  Tokens serve(const Asked& asked) {
    const int64_t number = submit(asked);
    finish();
    return given(number);
  }

  // What it gives where no page is shared: under a root of its own.
  Tokens serve_alone(Asked asked) {
    asked.root = next_root_++;
    return serve(asked);
  }

 private:
  std::unique_ptr<ServingCore> core_;
  std::map<int64_t, Tokens> given_;
  int64_t next_request_ = 0;
  uint64_t next_root_ = 1000;
};

constexpr const char* kModel = "llama:L=2,C=48,H=6,KV=3,F=48,V=96,T=256";

struct Layout {
  const char *devices, *parallel;
  std::optional<DType> cache;
};
const Layout kLayouts[] = {{"cpu:1", "", {}},
                           {"cpu:1", "", DType::kF16},
                           {"cpu:3", "tp=3", DType::kBF16},
                           {"cpu:2", "tp=2", {}},  // one device has two heads
                           {"cpu:2", "pp=2", {}}};

ServingSettings settings_of(const Layout& layout, int64_t page_size = 8, int64_t pages = 512) {
  ServingSettings settings;
  settings.compute.devices = layout.devices;
  settings.compute.parallel = layout.parallel;
  settings.cache = layout.cache;
  settings.rows = 4;
  settings.step_tokens = 48;
  settings.page_size = page_size;
  settings.pages = pages;
  return settings;
}

}  // namespace

TEST_CASE("prefixes: every length around page borders is found to the token, with the bits of computing it") {
  for (const Layout& layout : kLayouts) {
    CAPTURE(std::string(layout.parallel));
    Server server(kModel, settings_of(layout));
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
  Server server(kModel, settings_of(kLayouts[0]));
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
  for (const Layout& layout : kLayouts) {
    CAPTURE(std::string(layout.parallel));
    Server server(kModel, settings_of(layout));
    uint32_t seed = 4;
    const Tokens base = random_tokens(seed, 21, 96);
    server.serve({base, 1});  // 16 tokens in full pages, 5 in the last one
    std::vector<Asked> asked;
    for (int i = 0; i < 3; ++i) asked.push_back({joined(base, random_tokens(seed, 6, 96)), 8});
    const ServingCore::Counts before = server.counts();
    std::vector<int64_t> numbers;
    for (const Asked& it : asked) numbers.push_back(server.submit(it));
    server.finish();
    const ServingCore::Counts after = server.counts();
    CHECK(after.reused - before.reused == 3 * 21);
    CHECK(after.copied - before.copied == 2 * 5);  // the first one writes on in the page itself
    CHECK(after.tokens - before.tokens == 3 * (6 + 7));
    for (size_t i = 0; i < asked.size(); ++i) CHECK(server.given(numbers[i]) == server.serve_alone(asked[i]));
  }
}

TEST_CASE("prefixes: where there is no page for a copy the page is written on") {
  Server server(kModel, settings_of(kLayouts[0], 8, 4));
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
  Server server(kModel, settings_of(kLayouts[0]));
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
  Server server("llama:L=1,C=32,H=2,F=48,V=96,T=1100", settings);
  uint32_t seed = 7;
  const Tokens common = random_tokens(seed, 1000, 96);
  std::vector<Asked> asked;
  for (int32_t i = 0; i < 16; ++i)
    asked.push_back({joined(joined(common, {i}), random_tokens(seed, 9, 96)), 3});
  std::vector<int64_t> numbers;
  for (const Asked& it : asked) numbers.push_back(server.submit(it));
  server.finish();
  CHECK(server.counts().tokens == 1000 + 16 * (10 + 2));
  CHECK(server.counts().reused == 15 * 1000);
  CHECK(server.counts().preemptions == 0);
  for (size_t i = 0; i < 16; i += 5) CHECK(server.given(numbers[i]) == server.serve_alone(asked[i]));
}

TEST_CASE("prefixes: those who wait for another's tokens let others pass and go on when it ends") {
  uint32_t seed = 8;
  const Tokens common = random_tokens(seed, 120, 96);
  const Asked leader{joined(common, {1, 2}), 6}, follower{joined(common, {3, 4}), 6},
      stranger{random_tokens(seed, 20, 96), 6};
  for (const int cancelled_at : {-1, 0, 1, 2, 3, 4}) {
    CAPTURE(cancelled_at);
    ServingSettings settings = settings_of(kLayouts[0]);
    settings.step_tokens = 50;
    Server server(kModel, settings);
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
  ServingSettings settings = settings_of(kLayouts[0]);
  Server server(kModel, settings);
  server.submit({joined(common, {1}), 2, 0, 0});
  const Asked urgent{joined(common, {2}), 2, 0, 1};
  server.step();
  server.step();
  const int64_t number = server.submit(urgent);
  server.step();  // the last 25 tokens of the first one, and some of this one
  CHECK(server.counts().running == 2);
  server.finish();
  CHECK(server.given(number) == server.serve_alone(urgent));
}

TEST_CASE("prefixes: each turn of a conversation computes its new tokens and the last one before") {
  Server server(kModel, settings_of(kLayouts[0]));
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

TEST_CASE("prefixes: in random mixes of forks, roots and preemptions each has the tokens of its run alone") {
  const char* const full = std::getenv("TESSERA_TEST_FULL");
  const uint32_t mixes = full != nullptr && full[0] == '1' ? 60 : 3;  // of each layout
  for (const Layout& layout : kLayouts) {
    CAPTURE(std::string(layout.parallel));
    Server server(kModel, settings_of(layout, 8, 30));
    Server alone(kModel, settings_of(layout, 8, 512));
    for (uint32_t mix = 0; mix < mixes; ++mix) {
      CAPTURE(mix);
      uint32_t seed = 100 + mix;
      std::vector<Tokens> texts = {random_tokens(seed, 60, 96), random_tokens(seed, 100, 96)};
      std::map<int64_t, Asked> asked;
      std::vector<int64_t> cancelled;
      while (asked.size() < 24) {
        const Tokens& text = texts[next(seed) % texts.size()];
        Asked it{joined(first(text, next(seed) % text.size()), random_tokens(seed, 1 + next(seed) % 12, 96)),
                 1 + next(seed) % 20, next(seed) % 2, static_cast<int32_t>(next(seed) % 3)};
        const int64_t number = server.submit(it);
        asked.emplace(number, it);
        if (next(seed) % 8 == 0) server.cancel(number), cancelled.push_back(number);
        for (uint32_t steps = next(seed) % 4; steps > 0; --steps) server.step();
        const Tokens now = joined(it.prompt, server.given(number));
        if (now.size() < 200) texts.push_back(now);
        if (next(seed) % 8 == 0) server.cancel(number), cancelled.push_back(number);
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

}  // namespace tessera
