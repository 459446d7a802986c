// Engines and generators on the weights that a trainer trains: they compute what the trainer does, on any layout; updates
// in between; refusals.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/fed_training.h"
#include "tests/capi/largest_difference.h"
#include "tests/capi/small_training.h"
#include "tests/number_after.h"

using namespace capi_test;

namespace {

using EngineHandle = Handle<tsr_engine, tsr_engine_free>;

constexpr const char* kLlama = "llama:L=2,C=32,H=4,KV=2,F=48,V=64,T=64";
constexpr const char* kTiedGpt = "gpt2:L=2,C=32,H=4,V=64,T=64";
// The engine's pages hold latent vectors, the trainer's attention has keys and values of every head.
constexpr const char* kLatent = "deepseek2:L=2,C=32,H=4,D=24,R=8,KA=24,VD=12,F=24,E=4,K=2,FS=24,V=64,T=64";
constexpr int64_t kRows = 4, kTrainedTokens = 24;

// A trainer of parts of steps, and its rows of tokens with the tokens that follow.
struct Parted {
  Runtime rt = runtime();
  Model model;
  Trainer trainer;
  std::vector<int32_t> tokens, labels;

  struct Settings {
    const char *devices = "cpu:1", *parallel = "", *model = kLlama, *precision = "f32", *weights = "model",
               *trained = nullptr;
    bool adapters = false;
  };
  explicit Parted(const Settings& settings) : model(described(settings.model)) {
    if (settings.adapters) {
      tsr_model* adapted = nullptr;
      ok(tsr_model_add_adapters(model.get(), options({{"rank", 4}}).get(), &adapted));
      model.reset(adapted);
    }
    const Options chosen = options({{"devices", std::string(settings.devices)},
                                    {"parallel", std::string(settings.parallel)},
                                    {"precision", std::string(settings.precision)},
                                    {"weights", std::string(settings.weights)},
                                    {"batch", kRows},
                                    {"seq", kTrainedTokens},
                                    {"lr", 0.02},
                                    {"warmup", 0},
                                    {"losses", std::string("cross_entropy")}});
    if (settings.trained != nullptr) ok(tsr_options_set_str(chosen.get(), "trained", settings.trained));
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(rt.get(), model.get(), nullptr, chosen.get(), &made));
    trainer.reset(made);
    const auto drawn = noise(static_cast<size_t>(kRows * kTrainedTokens), 3);
    for (const float value : drawn) tokens.push_back(static_cast<int32_t>((value + 1) * 31.9f));
    for (size_t i = 0; i < tokens.size(); ++i) labels.push_back((i + 1) % kTrainedTokens == 0 ? -1 : tokens[i + 1]);
  }
  tsr_batch batch() const {
    tsr_batch made{};
    made.struct_size = sizeof made;
    made.rows = kRows;
    made.seq = kTrainedTokens;
    made.tokens = tokens.data();
    made.labels = labels.data();
    return made;
  }
  void update() {
    const tsr_batch given = batch();
    ok(tsr_trainer_forward_backward(trainer.get(), &given, "cross_entropy",
                                    options({{"scale", 1.0 / (kRows * kTrainedTokens)}}).get(), nullptr, nullptr, 0,
                                    nullptr));
    ok(tsr_trainer_optimizer_step(trainer.get(), nullptr, nullptr));
  }
  std::vector<float> forward() {
    const tsr_batch given = batch();
    std::vector<float> out(tokens.size());
    size_t count = 0;
    ok(tsr_trainer_forward(trainer.get(), &given, out.data(), out.size(), &count));
    return out;
  }
};

EngineHandle engine_on(const Trainer& trainer, std::initializer_list<Setting> more = {}) {
  Options chosen = options(more);
  ok(tsr_options_set_i64(chosen.get(), "context", 64));
  ok(tsr_options_set_i64(chosen.get(), "sequences", 4));
  tsr_engine* made = nullptr;
  ok(tsr_engine_new_for_trainer(trainer.get(), chosen.get(), &made));
  return EngineHandle(made);
}

// Ends all requests; calls `each` for every event.
void collect(const EngineHandle& engine, int64_t texts, const std::function<void(const tsr_event&)>& each) {
  while (texts > 0) {
    tsr_event event{};
    event.struct_size = sizeof event;
    ok(tsr_engine_next(engine.get(), -1, &event));
    each(event);
    texts -= event.kind == TSR_EVENT_END;
  }
}

// Log probabilities of the rows' labels, as tsr_trainer_forward has them.
std::vector<float> scores(const EngineHandle& engine, const Parted& trained) {
  std::vector<int64_t> requests;
  for (int64_t row = 0; row < kRows; ++row)
    ok(tsr_engine_submit_tokens(engine.get(), options({{"score_from", 1}}).get(),
                                trained.tokens.data() + row * kTrainedTokens, kTrainedTokens, &requests.emplace_back()));
  collect(engine, kRows, [](const tsr_event& event) {
    INFO(std::string(event.details));
    CHECK(event.finish == TSR_FINISH_STOP);
  });
  std::vector<float> all;
  for (const int64_t request : requests) {
    std::vector<float> own(kTrainedTokens - 1);
    size_t count = 0;
    ok(tsr_engine_take_scores(engine.get(), request, own.data(), own.size(), nullptr, &count));
    CHECK(count == own.size());
    own.push_back(0);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

}  // namespace

TEST_CASE("an engine on a trainer has its log probabilities, before and after updates, on any layout") {
  for (const Parted::Settings& settings : std::initializer_list<Parted::Settings>{
           {},
           {.precision = "bf16"},
           {.precision = "bf16", .weights = "bf16"},
           {.adapters = true},
           {.weights = "bf16", .trained = "block.1.*"},
           {.model = kTiedGpt},
           {.devices = "cpu:2", .parallel = "tp=2"},
           {.devices = "cpu:2", .parallel = "pp=2"},
           {.devices = "cpu:2", .parallel = "pp=2", .model = kTiedGpt},
           {.devices = "cpu:2", .parallel = "dp=2"},
           {.devices = "cpu:2", .parallel = "dp=2,zero=1"},
           {.devices = "cpu:2", .parallel = "dp=2,zero=3"},
           {.devices = "cpu:4", .parallel = "dp=2,tp=2,zero=3", .adapters = true},
           {.model = kLatent, .precision = "bf16"},
           {.devices = "cpu:2", .parallel = "tp=2", .model = kLatent, .adapters = true},
           {.devices = "cpu:4", .parallel = "dp=2,pp=2,zero=1", .model = kLatent}}) {
    INFO(std::string(settings.parallel), " ", std::string(settings.precision), " ",
         std::string(settings.model));
    Parted trained(settings);
    const EngineHandle engine = engine_on(trained.trainer);
    // A log probability of about -4 has a last bit of 5e-7, and the two add up the exponentials in other orders. Absorbed
    // products in bf16 round other sums, each by up to 2^-9 of it.
    const bool is_rounded = settings.model == kLatent && settings.precision == std::string("bf16");
    const double tolerance = is_rounded ? 0.02 : 1e-5;
    for (int updates = 0; updates < 3; ++updates) {
      CHECK(largest_difference(scores(engine, trained), trained.forward()) < tolerance);
      trained.update();
    }
  }
}

namespace {

// The texts' tokens, one request each, drawn by temperature 0.
std::vector<int32_t> greedy(const EngineHandle& engine, const std::vector<int32_t>& prompt, int64_t count) {
  int64_t request = 0;
  ok(tsr_engine_submit_tokens(engine.get(),
                              options({{"temperature", 0.0}, {"max_tokens", count}, {"ignore_eos", 1}}).get(),
                              prompt.data(), prompt.size(), &request));
  std::vector<int32_t> tokens;
  collect(engine, 1, [&](const tsr_event& event) {
    INFO(std::string(event.details));
    CHECK(event.finish != TSR_FINISH_FAILED);
    if (event.kind == TSR_EVENT_TOKEN && event.token >= 0) tokens.push_back(event.token);
  });
  return tokens;
}

std::vector<int32_t> greedy(const Generator& generator, const std::vector<int32_t>& prompt) {
  ok(tsr_generator_start_tokens(generator.get(), prompt.data(), prompt.size()));
  std::vector<int32_t> tokens;
  for (;;) {
    tsr_piece piece{};
    piece.struct_size = sizeof piece;
    ok(tsr_generator_next(generator.get(), -1, &piece));
    if (piece.kind == TSR_END) return tokens;
    if (piece.token >= 0) tokens.push_back(piece.token);
  }
}

Generator generator_on(const Trainer& trainer, int64_t tokens) {
  tsr_generator* made = nullptr;
  ok(tsr_generator_new_for_trainer(
      trainer.get(), options({{"context", 64}, {"temperature", 0.0}, {"max_tokens", tokens}}).get(), &made));
  return Generator(made);
}

// An engine over a copy of the trained model.
EngineHandle engine_over(const Runtime& rt, const Trainer& trainer, const Model& model) {
  ok(tsr_trainer_store(trainer.get(), model.get()));
  tsr_engine* made = nullptr;
  ok(tsr_engine_new(rt.get(), model.get(), options({{"context", 64}, {"sequences", 4}}).get(), &made));
  return EngineHandle(made);
}

// Training on one sentence, over and over.
constexpr const char* kSentence = "a dozen brown foxes jump over my lazy dogs";
Trainer overfitting(const Runtime& rt, const Model& model, const char* devices, const char* parallel) {
  const std::string text = kSentence;
  const std::vector<int32_t> bytes(text.begin(), text.end());
  tsr_dataset* dataset = nullptr;
  ok(tsr_dataset_new_tokens(
      bytes.data(), bytes.size(),
      options({{"seq", static_cast<int64_t>(bytes.size()) - 1}, {"eval_fraction", 0.0}}).get(), &dataset));
  const Dataset owner(dataset);
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), model.get(), dataset,
                     options({{"devices", std::string(devices)},
                              {"parallel", std::string(parallel)},
                              {"batch", 2},
                              {"lr", 3e-3},
                              {"beta2", 0.95},
                              {"warmup", 0},
                              {"clip_norm", 0.0}})
                         .get(),
                     &made));
  return Trainer(made);
}
constexpr const char* kReciting = "llama:L=1,C=256,H=8,KV=4,F=256,V=256,T=64";

}  // namespace

TEST_CASE("what an update changes is computed again: requests go on, and nothing cached survives") {
  Parted trained({});
  const EngineHandle engine = engine_on(trained.trainer);
  const std::vector<int32_t> prompt(trained.tokens.begin(), trained.tokens.begin() + kTrainedTokens);
  const std::vector<int32_t> before = greedy(engine, prompt, 12);
  for (int updates = 0; updates < 3; ++updates) {
    trained.update();
    const EngineHandle copy = engine_over(trained.rt, trained.trainer, trained.model);
    CHECK(greedy(engine, prompt, 12) == greedy(copy, prompt, 12));
  }
  CHECK(greedy(engine, prompt, 12) != before);  // or the test shows nothing
  // A request that an update overtakes: its later tokens are those of the new weights, after its own first ones.
  int64_t request = 0;
  ok(tsr_engine_submit_tokens(engine.get(),
                              options({{"temperature", 0.0}, {"max_tokens", 12}, {"logits", 1}}).get(),
                              prompt.data(), prompt.size(), &request));
  std::vector<int32_t> all = prompt;
  collect(engine, 1, [&](const tsr_event& event) {
    if (event.kind == TSR_EVENT_TOKEN && event.token >= 0) all.push_back(event.token);
    if (event.kind != TSR_EVENT_LOGITS) return;
    if (all.size() == prompt.size() + 6) trained.update();
    ok(tsr_engine_answer(engine.get(), request, 0, nullptr, 0));
  });
  REQUIRE(all.size() == prompt.size() + 12);
  // The logits that waited at the update were of the old weights, so one token more is.
  const std::vector<int32_t> kept(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(prompt.size()) + 7);
  const EngineHandle copy = engine_over(trained.rt, trained.trainer, trained.model);
  CHECK(greedy(copy, kept, 5) == std::vector<int32_t>(all.end() - 5, all.end()));
}

TEST_CASE("a generator on a trainer gives the tokens of one over the stored model, after each update") {
  for (const char* parallel : {"", "tp=2", "pp=2"}) {
    INFO(std::string(parallel));
    Parted trained({.devices = *parallel ? "cpu:2" : "cpu:1", .parallel = parallel});
    const Generator generator = generator_on(trained.trainer, 10);
    const std::vector<int32_t> prompt(trained.tokens.begin(), trained.tokens.begin() + kTrainedTokens);
    for (int updates = 0; updates < 2; ++updates) {
      const EngineHandle copy = engine_over(trained.rt, trained.trainer, trained.model);
      CHECK(greedy(generator, prompt) == greedy(copy, prompt, 10));
      trained.update();
    }
  }
}

TEST_CASE("an engine on a trainer holds no weights of its own, and outlives the trainer's handle") {
  Parted trained({});
  EngineHandle engine = engine_on(trained.trainer);
  const std::string report = text([&](auto... out) { return tsr_engine_report(engine.get(), out...); });
  CHECK(tessera::test::number_after(report, "\"shared_weight_bytes\":") > 0);
  CHECK(tessera::test::number_after(report, "\"copied_weight_bytes\":") == 0);
  const std::vector<int32_t> prompt = {1, 2, 3};
  const std::vector<int32_t> expected = greedy(engine, prompt, 4);
  trained.trainer.reset();
  CHECK(greedy(engine, prompt, 4) == expected);
}

TEST_CASE("an engine's pages fill what the trainer leaves of a memory limit, and no more") {
  Parted trained({});
  const int64_t arena = tessera::test::number_after(report(trained.trainer), "\"predicted\":");
  const auto own_bytes = [](const EngineHandle& engine, int64_t* tokens) {
    const std::string found = text([&](auto... out) { return tsr_engine_report(engine.get(), out...); });
    const std::string devices = found.substr(found.find("\"arena_bytes\""));
    *tokens = tessera::test::number_after(found, "\"cache_tokens\":");
    return tessera::test::number_after(devices, "\"predicted\":") -
           tessera::test::number_after(devices, "\"shared_weight_bytes\":");
  };
  int64_t tokens = 0;
  const int64_t least = own_bytes(engine_on(trained.trainer, {{"cache_tokens", 64}}), &tokens);
  CHECK(tokens == 64);
  // A page of 64 tokens has 16 KiB of keys and values.
  const int64_t limit = arena + least + 40'000;
  const EngineHandle engine = engine_on(trained.trainer, {{"memory_limit", limit}});
  CHECK(arena + own_bytes(engine, &tokens) <= limit);
  CHECK(tokens > 64);
  CHECK(tokens < 4 * 64);  // without a limit
  CHECK(greedy(engine, {1, 2, 3}, 8).size() == 8);
}

TEST_CASE("updates and requests of two threads take turns") {
  Parted trained({});
  const EngineHandle engine = engine_on(trained.trainer);
  std::thread training([&] {
    for (int updates = 0; updates < 20; ++updates) trained.update();
  });
  for (int i = 0; i < 10; ++i) CHECK(greedy(engine, {1, 2, 3, 4, 5}, 8).size() == 8);
  training.join();
  CHECK(largest_difference(scores(engine, trained), trained.forward()) < 1e-5);
}

TEST_CASE("engines on trainers refuse what the trainer has settled, by name") {
  Parted trained({});
  const auto refused = [&](std::initializer_list<Setting> settings) {
    tsr_engine* made = nullptr;
    const Error error =
        take(tsr_engine_new_for_trainer(trained.trainer.get(), options(settings).get(), &made));
    CHECK(made == nullptr);
    CHECK(error.message.find(settings.begin()->first) != std::string::npos);
    return error.code;
  };
  for (const char* key :
       {"devices", "parallel", "precision", "weights", "activations", "repack", "plan_file"})
    CHECK(refused({{key, std::string("f32")}}) == TSR_INVALID_ARGUMENT);
  CHECK(refused({{"adapters", 2}}) == TSR_UNSUPPORTED);
  CHECK(refused({{"memory_limit", 4096}}) == TSR_OUT_OF_MEMORY);
  CHECK(refused({{"contexts", 64}}) == TSR_INVALID_ARGUMENT);
  const EngineHandle engine = engine_on(trained.trainer);
  tsr_sequence* sequence = nullptr;
  CHECK(take(tsr_engine_restore_sequence(engine.get(), "nowhere", &sequence)).code == TSR_UNSUPPORTED);
  tsr_generator* generator = nullptr;
  CHECK(take(tsr_generator_new_for_trainer(trained.trainer.get(),
                                           options({{"devices", std::string("cpu:1")}}).get(), &generator))
            .code == TSR_INVALID_ARGUMENT);
  CHECK(take(tsr_engine_new_for_trainer(nullptr, nullptr, nullptr)).code == TSR_INVALID_ARGUMENT);
}

TEST_CASE(
    "a sentence is learnt by heart in 30 steps, saved, loaded, and recited by an engine on the trainer") {
  const Runtime rt = runtime();
  const Scratch folder;
  const std::string text = kSentence;
  const std::vector<int32_t> prompt(text.begin(), text.begin() + 1);
  const std::vector<int32_t> rest(text.begin() + 1, text.end());
  const Trainer trainer = overfitting(rt, described(kReciting), "cpu:1", "");
  double loss = 0;
  for (int i = 0; i < 30; ++i) loss = one_step(trainer);
  CHECK(loss < 0.05);
  ok(tsr_trainer_save_state(trainer.get(), (folder / "whole").c_str(), nullptr));
  ok(tsr_trainer_save_state(trainer.get(), (folder / "weights").c_str(), options({{"optimizer", 0}}).get()));
  CHECK(greedy(engine_on(trainer), prompt, std::ssize(rest)) == rest);

  // Another trainer from other first values, on another layout too.
  for (const char* parallel : {"", "dp=2,zero=1"}) {
    INFO(std::string(parallel));
    const Trainer loaded = overfitting(rt, described(kReciting, 99), *parallel ? "cpu:2" : "cpu:1", parallel);
    const EngineHandle engine = engine_on(loaded);
    CHECK(greedy(engine, prompt, std::ssize(rest)) != rest);
    ok(tsr_trainer_load_state(loaded.get(), (folder / "weights").c_str(), options({{"optimizer", 0}}).get()));
    CHECK(greedy(engine, prompt, std::ssize(rest)) == rest);
    for (const char* name : {"token_embedding", "block.0.down"})
      CHECK(parameter(loaded, name) == parameter(trainer, name));  // bit for bit
    const std::vector<float> moments = parameter(loaded, "block.0.down.m");
    CHECK(std::ranges::all_of(moments, [](float it) { return it == 0; }));
    CHECK(step(loaded).step == 1);
    ok(tsr_trainer_load_state(loaded.get(), (folder / "whole").c_str(), nullptr));
    CHECK(parameter(loaded, "block.0.down.m") == parameter(trainer, "block.0.down.m"));
    CHECK(step(loaded).step == 31);
  }
  // A step that was resumed is the one that was not interrupted.
  const Trainer resumed = overfitting(rt, described(kReciting, 99), "cpu:1", "");
  ok(tsr_trainer_load_state(resumed.get(), (folder / "whole").c_str(), nullptr));
  CHECK(one_step(resumed) == one_step(trainer));
  CHECK(parameter(resumed, "block.0.q") == parameter(trainer, "block.0.q"));

  // Parameters alone come from any checkpoint, and are no training to resume.
  ok(tsr_trainer_load_state(resumed.get(), (folder / "whole").c_str(), options({{"optimizer", 0}}).get()));
  CHECK(step(resumed).step == 1);
  const Error alone = take(tsr_trainer_resume(resumed.get(), (folder / "weights").c_str()));
  CHECK(alone.code == TSR_INVALID_ARGUMENT);
  CHECK(alone.message.find("optimizer 0") != std::string::npos);
  CHECK(take(tsr_trainer_load_state(resumed.get(), (folder / "weights").c_str(),
                                    options({{"optimiser", 0}}).get()))
            .code == TSR_INVALID_ARGUMENT);
}
