// Engines of several replicas (parallel dp=K): a request gives what it gives on one, wherever it is computed.
#include <doctest/doctest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "c_api.h"
#include "engine/model/export.h"
#include "engine/model/model_contents.h"
#include "engine/serving/pages/cached_prefix.h"
#include "engine/serving/replicas/engine.h"
#include "engine/serving/replicas/replica_choice.h"
#include "engine/serving/replicas/replica_settings.h"
#include "graph/base/text.h"
#include "tests/capi/new_core.h"
#include "tests/capi/random_adapter.h"
#include "tests/capi/test_server.h"
#include "text/json.h"

namespace tessera::serving_tests {
namespace {

using Kind = ServingEvent::Kind;
using Finish = ServingEvent::Finish;

const int64_t k1 = 1;

struct Text {
  Tokens tokens;
  Finish finish = Finish::kNone;
  int64_t cached = 0;
  bool operator==(const Text& other) const { return tokens == other.tokens && finish == other.finish; }
};
using Texts = std::map<std::pair<int64_t, int32_t>, Text>;

// Engines of one model, whose events are collected until nothing is in progress.
class Server {
 public:
  Server(std::shared_ptr<SharedModel> model, std::string devices, std::string parallel,
         Options options = {}) {
    options.try_emplace("devices", std::move(devices));
    options.try_emplace("parallel", std::move(parallel));
    auto made = Engine::create(new_runtime(), std::move(model), options);
    REQUIRE_MESSAGE(made.ok(), made.status().to_string());
    engine_ = std::move(*made);
  }

  Engine& engine() { return *engine_; }

  int64_t submit(const Tokens& prompt, const Options& options) {
    const auto request = engine_->submit_tokens(prompt, options);
    REQUIRE_MESSAGE(request.ok(), request.status().to_string());
    return *request;
  }

  ServingEvent next(double timeout_s = -1) {
    auto event = engine_->next(timeout_s);
    REQUIRE_MESSAGE(event.ok(), event.status().to_string());
    return std::move(*event);
  }

  Texts collect() {
    Texts texts;
    for (;;) {
      const ServingEvent event = next();
      if (event.kind == Kind::kPending) break;
      Text& text = texts[{event.request, event.index}];
      CHECK(text.finish == Finish::kNone);
      if (event.kind == Kind::kToken) text.tokens.push_back(event.token);
      if (event.kind != Kind::kEnd) continue;
      text.finish = event.finish;
      text.cached = event.usage->cached_tokens;
      CHECK_MESSAGE(event.finish != Finish::kFailed, event.failure.to_string());
    }
    const Json figures = report();
    CHECK(figures["running"] == 0);
    CHECK(figures["waiting"] == 0);
    CHECK(figures["free_cache_tokens"] == figures["cache_tokens"]);  // no page is lost
    return texts;
  }

  Json report() {
    const auto figures = engine_->report_json();
    REQUIRE(figures.ok());
    return Json::parse(*figures);
  }

 private:
  std::unique_ptr<Engine> engine_;
};

std::shared_ptr<SharedModel> served_model() { return new_model(kServedModel); }

struct Asked {
  Tokens prompt;
  Options options;
};

// Prompts, some of which begin alike, with settings of all kinds.
std::vector<Asked> random_mix(uint32_t seed, size_t count) {
  std::vector<Asked> mix;
  const Tokens common = random_tokens(seed, 70, 96);
  for (size_t i = 0; i < count; ++i) {
    Tokens prompt = random_tokens(seed, 1 + next(seed) % 60, 96);
    if (next(seed) % 2 == 0) prompt = joined(first(common, 20 + next(seed) % 50), prompt);
    const int64_t texts = 1 + next(seed) % 3;
    Options options = {{"max_tokens", int64_t{1 + next(seed) % 24}},
                       {"seed", static_cast<int64_t>(i)},
                       {"temperature", next(seed) % 2 == 0 ? 0.0 : 0.9},
                       {"priority", int64_t{next(seed) % 3}},
                       {"n", texts}};
    if (next(seed) % 4 == 0) options["best_of"] = texts + 1;
    mix.push_back({std::move(prompt), std::move(options)});
  }
  return mix;
}

// The texts of each request; the first request is 0.
Texts serve(Server& server, const std::vector<Asked>& mix) {
  std::optional<int64_t> first;
  for (const Asked& asked : mix) {
    const int64_t number = server.submit(asked.prompt, asked.options);
    if (!first) first = number;
  }
  Texts texts;
  for (auto& [key, text] : server.collect()) texts[{key.first - *first, key.second}] = std::move(text);
  return texts;
}

Texts serve_one_by_one(Server& server, const std::vector<Asked>& mix) {
  Texts texts;
  for (size_t i = 0; i < mix.size(); ++i)
    for (auto& [key, text] : serve(server, {mix[i]}))
      texts[{static_cast<int64_t>(i), key.second}] = std::move(text);
  return texts;
}

// Allocated bytes of the heap, in all its arenas.
int64_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

int64_t resident_bytes() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

TEST_CASE("replicas: a request goes where least is to compute until its prompt is, cached tokens aside") {
  const auto choose = [](std::initializer_list<ReplicaLoad> loads) {
    return choose_replica(std::span(loads.begin(), loads.size()));
  };
  CHECK(choose({{0, 0}}) == 0);
  CHECK(choose({{5, 0}, {5, 0}, {5, 0}}) == 0);
  CHECK(choose({{9, 0}, {5, 0}, {5, 0}}) == 1);
  CHECK(choose({{100, 0}, {300, 250}}) == 1);  // the cached beginning is worth it
  CHECK(choose({{100, 0}, {300, 150}}) == 0);
  CHECK(choose({{0, 64}, {0, 100}}) == 1);
  CHECK(choose({{100, 100}, {0, 0}}) == 0);
}

TEST_CASE("replicas: what a plan's words want, and what each has of the whole") {
  CHECK(count_replicas("").value() == 1);
  CHECK(count_replicas("tp=2,zero=3").value() == 1);
  CHECK(count_replicas("single").value() == 1);
  CHECK(count_replicas("dp=1").value() == 1);
  CHECK(count_replicas(" tp=2 , dp = 3 ,zero=0").value() == 3);
  for (const char* words : {"dp=2,zero=1", "owt,dp=2"}) {
    const Status refused = count_replicas(words).status();
    CHECK(refused.code() == StatusCode::kInvalidArgument);
    CHECK(refused.message().find("each of an engine's 2 replicas has all of them") != std::string_view::npos);
  }
  CHECK(count_replicas("dq=2").status().message().find("nearest: dp") != std::string_view::npos);
  ServingSettings whole;
  whole.compute.parallel = " tp=2 , dp = 3 ,sp";
  whole.compute.memory_limit = whole.compute.host_memory_limit = 100;
  whole.rows = 16;
  whole.pages = 7;
  const ServingSettings own = settings_of_replica(whole, 3);
  CHECK(own.compute.parallel == " tp=2 ,dp=1,sp");
  CHECK(own.rows == 6);
  CHECK(own.pages == 3);
  CHECK(own.compute.memory_limit == 100);
  CHECK(own.compute.host_memory_limit == 33);
  CHECK(settings_of_replica(whole, 1).compute.parallel == whole.compute.parallel);
}

TEST_CASE("replicas: the tokens that pages hold of a prompt are counted as they are found") {
  PagePool pool(12, 4);
  uint32_t seed = 3;
  std::vector<Tokens> known;
  for (int round = 0; round < 200; ++round) {
    Tokens tokens = random_tokens(seed, 1 + next(seed) % 14, 3);
    if (!known.empty() && next(seed) % 2 == 0)
      tokens = joined(first(known.back(), known.back().size() / 2), tokens);
    CachedPrefix prefix = CachedPrefix::find(pool, PageIndex::root(7), tokens);
    CHECK(pool.count_known(PageIndex::root(7), tokens) ==
          std::ssize(prefix.pages) * 4 + (prefix.rest ? prefix.rest->common : 0));
    CHECK(pool.count_known(PageIndex::root(8), tokens) == 0);
    PagePool::Content before = prefix.contents.empty() ? PageIndex::root(7) : prefix.contents.back();
    for (size_t at = prefix.pages.size() * 4; at < tokens.size(); at += 4) {
      const auto page = pool.take();
      REQUIRE(page.has_value());
      prefix.pages.push_back(*page);
      const auto part = std::span(tokens).subspan(at, std::min<size_t>(4, tokens.size() - at));
      if (part.size() == 4)
        before = pool.remember(*page, before, part);
      else
        pool.remember_beginning(*page, before, part);
    }
    prefix.give_back(pool);
    known.push_back(std::move(tokens));
  }
}

TEST_CASE("replicas: any mix of requests gives what each gives alone on one replica") {
  struct Layout {
    const char *devices, *parallel, *alone_devices, *alone;
    int64_t replicas;
    Options options;
  };
  const Options tight = {{"sequences", int64_t{4}},
                         {"cache_tokens", int64_t{1024}},
                         {"context", int64_t{192}}},
                speculative = {{"sequences", int64_t{6}}, {"speculation", std::string("ngram")}};
  const Layout layouts[] = {{"cpu:2", "dp=2", "cpu:1", "", 2, tight},
                            {"cpu:3", "dp=3", "cpu:1", "", 3, speculative},
                            {"cpu:4", "dp=2,tp=2", "cpu:2", "tp=2", 2, tight},
                            {"cpu:4", "pp=2,dp=2", "cpu:2", "pp=2", 2, {{"sequences", int64_t{3}}}}};
  const auto model = served_model();
  const auto mix = random_mix(17, 24);
  for (const Layout& layout : layouts) {
    CAPTURE(layout.parallel);
    Server alone(model, layout.alone_devices, layout.alone),
        replicas(model, layout.devices, layout.parallel, layout.options);
    const Texts wanted = serve_one_by_one(alone, mix);
    CHECK(serve(replicas, mix) == wanted);
    CHECK(serve(replicas, mix) == wanted);  // from the caches
    const Json report = replicas.report();
    CHECK(report["replicas"] == layout.replicas);
    CHECK(alone.report()["replicas"] == 1);
    CHECK(report["requests"] == 48);
    const size_t devices = static_cast<size_t>(layout.devices[4] - '0');
    CHECK(report["devices"].size() == devices);
    REQUIRE(report["plan"]["devices"].size() == devices);
    for (size_t i = 0; i < devices; ++i) CHECK(report["plan"]["devices"][i]["name"] == format("cpu:{}", i));
    CHECK(report["cached_tokens"].get<int64_t>() > 0);
  }
}

TEST_CASE("replicas: options are of the whole engine") {
  const auto model = served_model();
  Server server(model, "cpu:3", "dp=3", {{"sequences", int64_t{16}}, {"cache_tokens", int64_t{1000}}});
  CHECK(server.report()["sequences"] == 18);
  CHECK(server.report()["cache_tokens"] == 3 * 6 * 64);  // 16 pages, divided
  const auto refused = [&](const char* devices, const char* parallel, Options options = {}) {
    options["devices"] = std::string(devices);
    options["parallel"] = std::string(parallel);
    const auto made = Engine::create(new_runtime(), model, options);
    REQUIRE(!made.ok());
    return std::string(made.status().message());
  };
  CHECK(refused("cpu:3", "dp=2").find("wanted a multiple of 2 devices") != std::string::npos);
  CHECK(refused("cpu:2", "dp=2,zero=3").find("replicas") != std::string::npos);
  // A prompt has to fit one replica.
  Server small(model, "cpu:2", "dp=2", {{"cache_tokens", int64_t{128}}});
  CHECK(!small.engine().submit_tokens(Tokens(64, 1), {}).ok());
  small.submit(Tokens(63, 1), {});
  CHECK(small.collect().size() == 1);
}

TEST_CASE("replicas: a turn of a conversation goes to the replica that holds it") {
  Server server(served_model(), "cpu:2", "dp=2");
  uint32_t seed = 5;
  std::vector<Tokens> histories;
  for (int i = 0; i < 4; ++i) histories.push_back(random_tokens(seed, 100, 96));
  for (int turn = 0; turn < 3; ++turn) {
    std::map<int64_t, size_t> whose;
    std::ranges::rotate(histories, histories.begin() + 1);  // those of a replica do not come in turn
    for (size_t i = 0; i < histories.size(); ++i)
      whose[server.submit(histories[i], {{"max_tokens", int64_t{8}}, {"ignore_eos", k1}})] = i;
    for (const auto& [key, text] : server.collect()) {
      Tokens& history = histories[whose.at(key.first)];
      if (turn > 0) CHECK(text.cached >= std::ssize(history) - 12);
      history = joined(history, joined(text.tokens, random_tokens(seed, 4, 96)));
    }
  }
}

TEST_CASE("replicas: one that has room takes over what waits behind another") {
  Server server(served_model(), "cpu:2", "dp=2", {{"sequences", int64_t{2}}});
  // Their callers answer nothing: the rows of both replicas are taken, and neither steps.
  const Options held = {{"logits", k1}, {"max_tokens", int64_t{5}}};
  server.submit({1, 2, 3}, held);
  const int64_t ended = server.submit({1, 2, 3}, {{"logits", k1}, {"max_tokens", int64_t{60}}});
  CHECK(server.next().kind == Kind::kLogits);
  CHECK(server.next().kind == Kind::kLogits);
  const int64_t queued =
      server.submit({4, 5}, {{"max_tokens", int64_t{3}}, {"n", int64_t{2}}, {"ignore_eos", k1}});
  const int64_t cancelled = server.submit({4, 5}, {{"max_tokens", int64_t{3}}});
  server.engine().cancel(cancelled);
  CHECK(server.next().request == cancelled);
  CHECK(server.next(0.01).kind == Kind::kPending);  // behind the first: the second has more to do
  server.engine().cancel(ended);
  CHECK(server.next().request == ended);
  for (int ends = 0; ends < 2;) {
    const ServingEvent event = server.next(20);
    REQUIRE(event.request == queued);
    ends += event.kind == Kind::kEnd;
  }
  server.engine().cancel(0);
  CHECK(server.collect().size() == 1);
}

TEST_CASE("replicas: cancelling from many threads loses no event and no page") {
  Server server(served_model(), "cpu:2", "dp=2",
                {{"sequences", int64_t{4}}, {"cache_tokens", int64_t{768}}, {"context", int64_t{192}}});
  constexpr int kThreads = 3, kEach = 40;
  std::vector<std::thread> clients;
  for (int thread = 0; thread < kThreads; ++thread)
    clients.emplace_back([&, thread] {
      uint32_t seed = static_cast<uint32_t>(thread);
      std::vector<int64_t> own;
      for (int i = 0; i < kEach; ++i) {
        const auto request = server.engine().submit_tokens(
            random_tokens(seed, 1 + next(seed) % 90, 96),
            {{"max_tokens", int64_t{1 + next(seed) % 40}}, {"n", int64_t{1 + next(seed) % 2}}});
        if (request.ok()) own.push_back(*request);
        if (next(seed) % 2 == 0) server.engine().cancel(own[next(seed) % own.size()]);
      }
    });
  std::map<int64_t, bool> seen;
  int pending = 0;
  while (std::ssize(seen) < kThreads * kEach || pending == 0) {
    const ServingEvent event = server.next(0.05);
    pending = event.kind == Kind::kPending;
    if (event.kind == Kind::kEnd) seen[event.request] = true;
  }
  for (std::thread& client : clients) client.join();
  for (const auto& [key, text] : server.collect()) seen[key.first] = true;
  CHECK(std::ssize(seen) == kThreads * kEach);
  server.submit({1, 2}, {{"max_tokens", int64_t{4}}, {"ignore_eos", k1}});
  CHECK(server.collect().begin()->second.tokens.size() == 4);
  server.submit({1, 2}, {{"max_tokens", int64_t{200}}, {"ignore_eos", k1}});  // and freed while both may work
  server.submit({3, 2}, {{"max_tokens", int64_t{200}}, {"ignore_eos", k1}});
}

TEST_CASE("replicas: a failure in one ends its texts and leaves those of others") {
  const auto runtime = new_runtime();
  const auto model = served_model();
  ServingSettings settings = settings_of({"cpu:2", "dp=1", {}});
  Outbox outbox;
  auto core = ServingCore::create(runtime, model, settings, {.index = 0, .count = 2});
  REQUIRE_MESSAGE(core.ok(), core.status().to_string());
  auto other = (*core)->replicate({.index = 1, .count = 2});
  REQUIRE_MESSAGE(other.ok(), other.status().to_string());
  const Replica::Hooks hooks{
      [&] { return outbox.has_room(); },
      [&](Replica& from, std::vector<ServingEvent> events) { outbox.put(std::move(events), from.core()); },
      {}};
  Replica failing(std::move(*core), 0, hooks), sound(std::move(*other), 1, hooks);
  const auto submit = [&](Replica& to, int64_t number) {
    const auto sampling = std::make_shared<SamplingSettings>();
    sampling->max_tokens = 60;
    sampling->temperature = 0.9;
    ServingRequest request;
    request.prompt = {4, 5, 6};
    request.sampling = sampling;
    auto texts = to.core().make_texts(request, number);
    REQUIRE(texts.ok());
    outbox.begin(number, 1, 1);
    to.submit(*texts);
  };
  const auto collect = [&] {
    std::map<int64_t, Text> texts;
    for (;;) {
      const ServingEvent event = outbox.take(-1).event;
      if (event.kind == Kind::kPending) return texts;
      if (event.kind == Kind::kToken) texts[event.request].tokens.push_back(event.token);
      if (event.kind == Kind::kEnd) texts[event.request].finish = event.finish;
    }
  };
  submit(sound, 0);
  const Text wanted = collect().at(0);
  CHECK(wanted.finish == Finish::kLength);
  bool has_failed = false;
  for (int64_t round = 0; round < 1000 && !has_failed; ++round) {  // until a run was hit
    std::atomic<bool> is_over = false;
    submit(failing, 2 * round + 1);
    submit(sound, 2 * round + 2);
    std::thread canceller([&] {
      while (!is_over) failing.core().runner().cancel();
    });
    const auto texts = collect();
    is_over = true;
    canceller.join();
    has_failed = texts.at(2 * round + 1).finish == Finish::kFailed;
    CHECK(texts.at(2 * round + 2) == wanted);
  }
  CHECK(has_failed);
  submit(failing, 3000);
  CHECK(collect().at(3000) == wanted);
}

TEST_CASE(
    "replicas: sequences are kept, saved from where they are cached, and restored to where there is room") {
  const capi_test::Scratch scratch;
  const auto model = served_model();
  Server server(model, "cpu:2", "dp=2"), another(model, "cpu:2", "dp=2"), alone(model, "cpu:1", "");
  uint32_t seed = 5;
  const Options keep = {{"max_tokens", int64_t{10}}, {"keep", k1}, {"ignore_eos", k1}, {"seed", k1}};
  std::vector<KeptSequence> kept;
  for (int i = 0; i < 2; ++i) server.submit(random_tokens(seed, 120, 96), keep);
  server.collect();
  const Options more = {{"max_tokens", int64_t{10}}, {"seed", k1}};
  for (int64_t i = 0; i < 2; ++i) {
    auto sequence = server.engine().take_sequence(i, 0);
    REQUIRE(sequence.ok());
    const std::string path = scratch / "sequence";
    REQUIRE(server.engine().save_sequence(*sequence, path).ok());
    auto restored = another.engine().restore_sequence(path);
    REQUIRE_MESSAGE(restored.ok(), restored.status().to_string());
    CHECK(restored->tokens == sequence->tokens);
    const Tokens tail = {7, 8};
    REQUIRE(another.engine().submit_sequence(*restored, tail, more).ok());
    alone.submit(joined(sequence->tokens, tail), more);
    const Text found = another.collect().begin()->second;
    CHECK(found.cached >= 120);
    CHECK(found == alone.collect().begin()->second);
  }
}

TEST_CASE("replicas: an adapter has one number in all") {
  const capi_test::Scratch scratch;
  const auto model = served_model();
  const auto adapted = with_adapter(model, 7, 4);
  const std::string path = scratch / "adapter.gguf";
  auto work = Export::create(adapted, path, {{"format", std::string("gguf")}, {"adapters", k1}});
  REQUIRE_MESSAGE(work.ok(), work.status().to_string());
  while ((*work)->done() < 1) REQUIRE((*work)->step().ok());
  REQUIRE((*work)->finish().ok());
  const Options options = {{"adapters", k1}, {"sequences", int64_t{4}}};
  Server alone(model, "cpu:1", "", options), server(model, "cpu:2", "dp=2", options);
  std::vector<Asked> mix = random_mix(29, 12);
  for (Server* const it : {&alone, &server}) {
    CHECK(it->engine().load_adapter(path).value() == 0);
    CHECK(it->engine().load_adapter(path).value() == 1);
  }
  for (size_t i = 0; i < mix.size(); ++i) mix[i].options["adapter"] = static_cast<int64_t>(i % 3) - 1;
  CHECK(serve(server, mix) == serve_one_by_one(alone, mix));
  CHECK(server.report()["adapters"] == 2);
  REQUIRE(server.engine().drop_adapter(0).ok());
  CHECK(server.engine().submit_tokens({1}, {{"adapter", int64_t{0}}}).status().code() ==
        StatusCode::kNotFound);
}

TEST_CASE("replicas: each has a draft model, which changes no text") {
  const capi_test::Scratch scratch;
  const auto model = served_model();
  const std::string path = scratch / "draft.tsr";
  REQUIRE(save_contents(contents_of(model), path, {}).ok());
  Server alone(model, "cpu:1", ""),
      server(model, "cpu:2", "dp=2",
             {{"sequences", int64_t{4}}, {"speculation", std::string("draft")}, {"draft_model", path}});
  const auto mix = random_mix(41, 12);
  CHECK(serve(server, mix) == serve_one_by_one(alone, mix));
  CHECK(server.report()["draft_devices"].size() == 2);
}

TEST_CASE("replicas: weights are in memory once") {
  const Options few = {{"sequences", int64_t{4}}, {"step_tokens", int64_t{8}}};
  const int64_t before = heap_bytes();
  const auto model = new_model("llama:L=2,C=512,H=8,KV=4,F=1536,V=2048,T=64");  // weights used by no other test
  Server alone(model, "cpu:1", "", few);
  const int64_t of_one = heap_bytes() - before, resident = resident_bytes();
  Server server(model, "cpu:2", "dp=2", few);
  server.submit({1, 2, 3}, {{"max_tokens", int64_t{2}}});
  server.submit({4, 2, 3}, {{"max_tokens", int64_t{2}}});
  server.collect();
  REQUIRE(of_one > 30'000'000);  // 9 million parameters
  CHECK(heap_bytes() - before < of_one + of_one / 10);
  // Arenas are no part of the heap. Pages that were free, and resident, may serve them: growth is at most theirs.
  CHECK(resident_bytes() - resident < of_one / 2);
}

}  // namespace tessera::serving_tests
