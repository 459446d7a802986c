// Engines through C: sequences as values, adapters of requests, and speculation, which changes no token.
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "c_api.h"
#include "engine_events.h"
#include "text/json.h"

using namespace capi_test;
using tessera::Json;

namespace {

using Sequence = Handle<tsr_sequence, tsr_sequence_free>;
using Tokens = std::vector<int32_t>;

Model small_model() {
  tsr_model* made = nullptr;
  ok(tsr_model_new("llama:L=2,C=32,H=4,KV=2,F=48,V=96,T=256", options({{"seed", int64_t{3}}}).get(), &made));
  return Model(made);
}

std::map<std::pair<int64_t, int32_t>, Tokens> collect(const Engine& from) {
  std::map<std::pair<int64_t, int32_t>, Tokens> tokens;
  for (;;) {
    const tsr_event event = next(from);
    if (event.kind == TSR_EVENT_PENDING) return tokens;
    if (event.kind == TSR_EVENT_TOKEN) tokens[{event.request, event.index}].push_back(event.token);
    if (event.kind == TSR_EVENT_END) CHECK(event.finish != TSR_FINISH_FAILED);
  }
}

int64_t submit(const Engine& to, const Tokens& prompt, std::initializer_list<Setting> settings) {
  int64_t request = -1;
  ok(tsr_engine_submit_tokens(to.get(), options(settings).get(), prompt.data(), prompt.size(), &request));
  return request;
}

int64_t resume(const Engine& to, const Sequence& from, const Tokens& more, std::initializer_list<Setting> settings) {
  int64_t request = -1;
  ok(tsr_engine_submit_sequence(to.get(), options(settings).get(), from.get(), more.data(), more.size(), &request));
  return request;
}

Sequence kept(const Engine& from, int64_t request) {
  tsr_sequence* made = nullptr;
  ok(tsr_engine_take_sequence(from.get(), request, 0, &made));
  return Sequence(made);
}

Tokens tokens_of(const Sequence& sequence) {
  size_t count = 0;
  ok(tsr_sequence_tokens(sequence.get(), nullptr, 0, &count));
  Tokens tokens(count);
  ok(tsr_sequence_tokens(sequence.get(), tokens.data(), count, &count));
  return tokens;
}

Json report(const Engine& from) {
  return Json::parse(text([&](tsr_text** out) { return tsr_engine_report(from.get(), out); }));
}

const int64_t k1 = 1;

}  // namespace

TEST_CASE("engine: sequences are kept, forked, rewound, saved and restored, and go on as if nothing had been") {
  const Runtime rt = runtime();
  const Model model = small_model();
  const Scratch scratch;
  const std::string path = (scratch.path / "sequence.tsq").string();
  Tokens prompt, all;
  for (int i = 0; i < 80; ++i) prompt.push_back(i * 13 % 96);
  {
    const Engine whole = engine(rt, model);
    submit(whole, prompt, {{"max_tokens", int64_t{60}}, {"seed", k1}, {"ignore_eos", k1}});
    all = collect(whole).begin()->second;
    REQUIRE(all.size() == 60);
  }
  const auto rest = [&](size_t from) { return Tokens(all.begin() + static_cast<std::ptrdiff_t>(from), all.end()); };
  const Engine it = engine(rt, model);
  const int64_t first =
      submit(it, prompt, {{"max_tokens", int64_t{30}}, {"seed", k1}, {"ignore_eos", k1}, {"keep", k1}});
  CHECK(collect(it).begin()->second == Tokens(all.begin(), all.begin() + 30));
  const Sequence sequence = kept(it, first);
  tsr_sequence* again = nullptr;
  CHECK(take(tsr_engine_take_sequence(it.get(), first, 0, &again)).code == TSR_NOT_FOUND);
  CHECK(tokens_of(sequence).size() == 110);
  tsr_sequence* copy = nullptr;
  ok(tsr_sequence_fork(sequence.get(), &copy));
  const Sequence fork(copy);
  ok(tsr_sequence_rewind(fork.get(), 90));
  CHECK(take(tsr_sequence_rewind(fork.get(), 91)).code == TSR_INVALID_ARGUMENT);
  CHECK(take(tsr_sequence_rewind(fork.get(), 0)).code == TSR_INVALID_ARGUMENT);
  // A token depends on its position, so that the same seed gives the same text.
  const int64_t before = report(it)["tokens"];
  resume(it, sequence, {}, {{"max_tokens", int64_t{30}}, {"seed", k1}, {"ignore_eos", k1}});
  CHECK(collect(it).begin()->second == rest(30));
  CHECK(report(it)["tokens"].get<int64_t>() - before == 30);  // its last token, and 29 others
  resume(it, fork, {}, {{"max_tokens", int64_t{50}}, {"seed", k1}, {"ignore_eos", k1}});
  CHECK(collect(it).begin()->second == rest(10));
  resume(it, fork, {all[10], all[11]}, {{"max_tokens", int64_t{48}}, {"seed", k1}, {"ignore_eos", k1}});
  CHECK(collect(it).begin()->second == rest(12));
  ok(tsr_engine_save_sequence(it.get(), sequence.get(), path.c_str()));
  const Engine other = engine(rt, model);
  tsr_sequence* read = nullptr;
  ok(tsr_engine_restore_sequence(other.get(), path.c_str(), &read));
  const Sequence restored(read);
  CHECK(tokens_of(restored) == tokens_of(sequence));
  resume(other, restored, {}, {{"max_tokens", int64_t{30}}, {"seed", k1}, {"ignore_eos", k1}});
  CHECK(collect(other).begin()->second == rest(30));
  CHECK(report(other)["tokens"] == 30);  // of the file's 110 none was computed but the last
  CHECK(take(tsr_engine_restore_sequence(other.get(), (path + "x").c_str(), &read)).code == TSR_NOT_FOUND);
}

TEST_CASE("engine: speculation changes no token, and some drafts are right") {
  const Runtime rt = runtime();
  const Model model = small_model();
  const Engine plain = engine(rt, model), speculative = engine(rt, model, {{"speculation", std::string("ngram")}});
  uint32_t seed = 5;
  std::map<int64_t, Tokens> wanted;
  for (int round = 0; round < 4; ++round) {
    for (const Engine* it : {&plain, &speculative}) {
      uint32_t own = seed;
      for (int i = 0; i < 12; ++i) {
        const auto random = [&] { return (own = own * 1664525u + 1013904223u) >> 8; };
        Tokens prompt;
        for (uint32_t n = 8 + random() % 30, period = 3 + random() % 6; prompt.size() < n;)
          prompt.push_back(static_cast<int32_t>(prompt.size() < period ? random() % 96 : prompt[prompt.size() - period]));
        const double temperature = i % 3 == 0 ? 0.0 : i % 3 == 1 ? 0.05 : 0.9;
        submit(*it, prompt, {{"max_tokens", int64_t{60}}, {"seed", int64_t{i}}, {"temperature", temperature},
                             {"repetition_penalty", i % 4 == 3 ? 1.2 : 1.0}, {"logprobs", int64_t{i % 2}}});
      }
    }
    seed = seed * 69069u + 1;
    CHECK(collect(plain) == collect(speculative));
  }
  const Json figures = report(speculative);
  CHECK(figures["accepted"].get<int64_t>() > 0);
  CHECK(figures["speculated"].get<int64_t>() >= figures["accepted"].get<int64_t>());
  CHECK(figures["free_cache_tokens"] == figures["cache_tokens"]);
  CHECK(report(plain)["speculated"] == 0);
}

TEST_CASE(
    "engine: a text that outgrows the first factors of its rotations, with drafts, adapters and saving") {
  const Runtime rt = runtime();
  tsr_model* made = nullptr;
  ok(tsr_model_new("phi3:L=2,C=32,H=4,F=48,V=97,T=64,rope_half,rope_rows=2,rope_switch=20,rope_magnitude=1.2",
                   options({{"seed", int64_t{3}}}).get(), &made));
  const Model model(made);
  ok(tsr_model_write(model.get(), "rope_factors",
                     tensor_f32({2, 4}, {1, 1.1f, 1.2f, 1.3f, 2, 3, 5, 8}).get()));
  const auto one = [&](std::initializer_list<Setting> more) {
    const Options settings = options(more);
    ok(tsr_options_set_i64(settings.get(), "sequences", 1));
    ok(tsr_options_set_i64(settings.get(), "context", 64));
    tsr_engine* it = nullptr;
    ok(tsr_engine_new(rt.get(), model.get(), settings.get(), &it));
    return Engine(it);
  };
  const auto write = [&](const Engine& it, const Tokens& prompt, int64_t adapter) {
    submit(it, prompt,
           {{"max_tokens", int64_t{30}}, {"temperature", 0.0}, {"ignore_eos", k1}, {"adapter", adapter}});
    return collect(it).begin()->second;
  };
  // Guesses stop at the switch: what comes behind it is computed by the other factors.
  const Engine plain = one({}), speculative = one({{"speculation", std::string("ngram")}});
  int64_t accepted = 0;
  for (int32_t i = 0; i < 12; ++i) {
    Tokens prompt;
    for (int32_t n = 0; n < 12; ++n) prompt.push_back((n % 3 * 37 + i * 5) % 97);
    CHECK(write(speculative, prompt, -1) == write(plain, prompt, -1));
    accepted = report(speculative)["accepted"];
  }
  CHECK(accepted > 0);
  // Pages of long texts without an adapter are not those of short ones with the first adapter.
  const Scratch scratch;
  const std::string folder = (scratch.path / "adapter").string();
  tsr_model* lora = nullptr;
  ok(tsr_model_add_adapters(model.get(), options({{"rank", int64_t{4}}}).get(), &lora));
  const Model adapted(lora);
  tsr_work* writing = nullptr;
  ok(tsr_export_begin_for_model(nullptr, adapted.get(), folder.c_str(),
                              options({{"format", std::string("peft")}}).get(), &writing));
  const Work work(writing);
  step_through(work.get());
  text([&](auto... out) { return tsr_export_finish(work.get(), out...); });
  Tokens longer;
  for (int32_t n = 0; n < 30; ++n) longer.push_back(n * 11 % 97);
  const Tokens shorter(longer.begin(), longer.begin() + 16);
  const auto with_adapter = [&](bool after_long) {
    const Engine it = one({{"adapters", k1}});
    int64_t adapter = -1;
    ok(tsr_engine_load_adapter(it.get(), folder.c_str(), &adapter));
    if (after_long) write(it, longer, -1);
    return write(it, shorter, adapter);
  };
  CHECK(with_adapter(true) == with_adapter(false));
  // A long text is kept and saved as one without an adapter.
  const int64_t number =
      submit(plain, longer, {{"max_tokens", int64_t{5}}, {"ignore_eos", k1}, {"keep", k1}});
  collect(plain);
  const Sequence sequence = kept(plain, number);
  const std::string path = (scratch.path / "long.tsq").string();
  ok(tsr_engine_save_sequence(plain.get(), sequence.get(), path.c_str()));
  tsr_sequence* restored = nullptr;
  ok(tsr_engine_restore_sequence(plain.get(), path.c_str(), &restored));
  CHECK(tokens_of(Sequence(restored)) == tokens_of(sequence));
}
