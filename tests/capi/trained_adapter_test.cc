// Adapters that a trainer trains, served by an engine over their base without a file: the values of the moment, the texts and
// logits of the same adapter in a file, and the trainer's log probabilities; of the head too; refusals.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/capi/engine_events.h"
#include "tests/capi/fed_training.h"
#include "tests/capi/small_training.h"

using namespace capi_test;

namespace {

constexpr const char* kUntied = "llama:L=2,C=32,H=4,KV=2,F=48,V=64,T=64,rope_half";
constexpr const char* kTied = "llama:L=2,C=32,H=4,KV=2,F=48,V=64,T=64,tied,rope_half";
constexpr int64_t kRows = 4, kTokens = 24;
constexpr int64_t kOne = 1;

Model with_adapters(const Model& base, std::vector<Setting> settings = {}) {
  if (std::ranges::none_of(settings, [](const Setting& it) { return std::string(it.first) == "rank"; }))
    settings.emplace_back("rank", int64_t{4});
  tsr_model* made = nullptr;
  ok(tsr_model_add_adapters(base.get(), options(settings).get(), &made));
  return Model(made);
}

void export_peft(const Model& model, const std::string& folder) {
  tsr_work* writing = nullptr;
  ok(tsr_export_begin_for_model(nullptr, model.get(), folder.c_str(), options({{"format", std::string("peft")}}).get(),
                                &writing));
  const Work work(writing);
  step_through(work.get());
  text([&](auto... out) { return tsr_export_finish(work.get(), out...); });
}

// A trainer of parts of steps over a model with adapters.
struct Training {
  const Runtime& rt;
  Trainer trainer;
  std::vector<int32_t> tokens, labels;

  Training(const Runtime& runtime, const Model& adapted, std::vector<Setting> more = {}) : rt(runtime) {
    std::vector<Setting> settings = {{"batch", kRows}, {"seq", kTokens}, {"lr", 0.05}, {"warmup", int64_t{0}},
                                     {"losses", std::string("cross_entropy")}};
    settings.insert(settings.end(), more.begin(), more.end());
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(rt.get(), adapted.get(), nullptr, options(settings).get(), &made));
    trainer.reset(made);
    for (const float value : noise(static_cast<size_t>(kRows * kTokens), 3))
      tokens.push_back(static_cast<int32_t>((value + 1) * 31.9f));
    for (size_t i = 0; i < tokens.size(); ++i) labels.push_back((i + 1) % kTokens == 0 ? -1 : tokens[i + 1]);
  }
  tsr_batch batch() const {
    tsr_batch made{};
    made.struct_size = sizeof made;
    made.rows = kRows;
    made.seq = kTokens;
    made.tokens = tokens.data();
    made.labels = labels.data();
    return made;
  }
  void update(int count = 1) const {
    const tsr_batch given = batch();
    for (int i = 0; i < count; ++i) {
      ok(tsr_trainer_forward_backward(trainer.get(), &given, "cross_entropy", options({{"scale", 0.01}}).get(), nullptr,
                                      nullptr, 0, nullptr));
      ok(tsr_trainer_optimizer_step(trainer.get(), nullptr, nullptr));
    }
  }
  std::vector<float> forward() const {
    const tsr_batch given = batch();
    std::vector<float> out(tokens.size());
    size_t count = 0;
    ok(tsr_trainer_forward(trainer.get(), &given, out.data(), out.size(), &count));
    return out;
  }
};

Engine serving(const Runtime& rt, const Model& base, std::vector<Setting> more = {}) {
  std::vector<Setting> settings = {{"context", int64_t{64}}, {"sequences", int64_t{1}}, {"adapters", int64_t{2}},
                                   {"adapter_rank", int64_t{6}}, {"step_tokens", int64_t{8}}};
  settings.insert(settings.end(), more.begin(), more.end());
  tsr_engine* made = nullptr;
  ok(tsr_engine_new(rt.get(), base.get(), options(settings).get(), &made));
  return Engine(made);
}

int64_t loaded(const Engine& engine, const Trainer& trainer) {
  int64_t adapter = -1;
  ok(tsr_engine_load_adapter_from_trainer(engine.get(), trainer.get(), &adapter));
  return adapter;
}

int64_t loaded(const Engine& engine, const std::string& path) {
  int64_t adapter = -1;
  ok(tsr_engine_load_adapter(engine.get(), path.c_str(), &adapter));
  return adapter;
}

// The tokens of a greedy text and the logits that they were drawn from.
struct Written {
  std::vector<int32_t> tokens;
  std::vector<std::vector<float>> logits;
  bool operator==(const Written&) const = default;
};

Written written(const Engine& engine, const Training& of, int64_t adapter) {
  int64_t request = 0;
  ok(tsr_engine_submit_tokens(engine.get(),
                              options({{"max_tokens", int64_t{6}}, {"temperature", 0.0}, {"ignore_eos", kOne},
                                       {"adapter", adapter}, {"logits", kOne}}).get(),
                              of.tokens.data(), 9, &request));
  Written found;
  for (;;) {
    const tsr_event event = next(engine);
    if (event.kind == TSR_EVENT_END) return found;
    if (event.kind == TSR_EVENT_TOKEN) found.tokens.push_back(event.token);
    if (event.kind != TSR_EVENT_LOGITS) continue;
    std::vector<float>& logits = found.logits.emplace_back(64);
    size_t count = 0;
    ok(tsr_engine_logits(engine.get(), request, event.index, logits.data(), logits.size(), &count));
    ok(tsr_engine_answer(engine.get(), request, event.index, nullptr, 0));
  }
}

// The largest difference from the trainer's log probabilities.
double furthest(const Engine& engine, const Training& of, int64_t adapter) {
  const std::vector<float> wanted = of.forward();
  double most = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    int64_t request = 0;
    ok(tsr_engine_submit_tokens(engine.get(), options({{"score_from", kOne}, {"adapter", adapter}}).get(),
                                of.tokens.data() + row * kTokens, kTokens, &request));
    while (next(engine).kind != TSR_EVENT_END) {
    }
    std::vector<float> own(kTokens - 1);
    size_t count = 0;
    ok(tsr_engine_take_scores(engine.get(), request, own.data(), own.size(), nullptr, &count));
    for (size_t i = 0; i < own.size(); ++i)
      most = std::max(most, std::abs(static_cast<double>(own[i] - wanted[static_cast<size_t>(row * kTokens) + i])));
  }
  return most;
}

// No file can be opened meanwhile.
struct NoFiles {
  rlimit before{};
  NoFiles() {
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const rlimit none{0, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoFiles() { setrlimit(RLIMIT_NOFILE, &before); }
};

Error refusal(const Engine& engine, const Trainer& trainer) {
  int64_t adapter = -1;
  return take(tsr_engine_load_adapter_from_trainer(engine.get(), trainer.get(), &adapter));
}

bool has(const Error& error, const char* words) { return error.message.find(words) != std::string::npos; }

}  // namespace

TEST_CASE("an engine over the base has the adapter of a trainer as it is now, without a file") {
  const Runtime rt = runtime();
  const Model base = described(kUntied), adapted = with_adapters(base, {{"alpha", 7.0}, {"dropout", 0.2}});
  const Engine engine = serving(rt, base);
  for (const auto& layout : std::vector<std::vector<Setting>>{
           {{"devices", std::string("cpu:1")}},
           {{"devices", std::string("cpu:2")}, {"parallel", std::string("tp=2")}},
           {{"devices", std::string("cpu:2")}, {"parallel", std::string("dp=2,zero=3")}},
           {{"devices", std::string("cpu:1")}, {"weights", std::string("bf16")}}}) {
    const Training training(rt, adapted, layout);
    training.update(2);
    int64_t now = -1;
    {
      const NoFiles guard;
      now = loaded(engine, training.trainer);
    }
    const Written first = written(engine, training, now);
    CHECK(first.logits.size() == 6);
    CHECK(first != written(engine, training, -1));
    // Rounding of sums in other orders; with weights bf16 the trainer's products read rounded factors, as the engine's do.
    CHECK(furthest(engine, training, now) < 1e-5);
    const Scratch scratch;
    const Model copy = with_adapters(base, {{"alpha", 7.0}, {"dropout", 0.2}});
    ok(tsr_trainer_store(training.trainer.get(), copy.get()));
    export_peft(copy, scratch / "adapter");
    const int64_t saved = loaded(engine, scratch / "adapter");
    CHECK(written(engine, training, saved) == first);
    int64_t of_model = -1;
    ok(tsr_engine_load_adapter_from_model(engine.get(), copy.get(), &of_model));
    CHECK(written(engine, training, of_model) == first);
    // Further steps leave it as it is.
    training.update();
    CHECK(written(engine, training, now) == first);
    const int64_t later = loaded(engine, training.trainer);
    CHECK(written(engine, training, later) != first);
    CHECK(furthest(engine, training, later) < 1e-5);
    for (const int64_t adapter : {now, saved, of_model, later}) ok(tsr_engine_drop_adapter(engine.get(), adapter));
  }
}

TEST_CASE("adapters of the head are served where the engine has room for them, of one that is the table too") {
  const Runtime rt = runtime();
  const Scratch scratch;
  const Model untied = described(kUntied), tied = described(kTied);
  const char* const on = "q_proj,down_proj,lm_head";
  export_peft(with_adapters(untied, {{"on", std::string(on)}}), scratch / "start");
  for (const Model* base : {&untied, &tied}) {
    tsr_model* made = nullptr;
    ok(tsr_model_load_adapters(base->get(), (scratch / "start").c_str(), nullptr, &made));
    const Model adapted(made);
    const Training training(rt, adapted);
    training.update(2);
    ok(tsr_trainer_store(training.trainer.get(), adapted.get()));
    const std::string path = scratch / (base == &tied ? "tied" : "untied");
    export_peft(adapted, path);
    const Engine blocks = serving(rt, *base);
    const Error error = refusal(blocks, training.trainer);
    CHECK(error.code == TSR_UNSUPPORTED);
    CHECK(has(error, "'output.lora_a' and 'output.lora_b' are of the head"));
    CHECK(has(error, "set adapter_on to blocks,head "));
    const Setting head = {"adapter_on", std::string("blocks,head")};
    for (const auto& more : std::vector<std::vector<Setting>>{
             {head},
             {head, {"devices", std::string("cpu:2")}, {"parallel", std::string("tp=2")}},
             {head, {"speculation", std::string("ngram")}, {"embeddings", kOne}},
             {head, {"weights", std::string("q8_0")}, {"precision", std::string("bf16")}, {"adapter_type", std::string("bf16")}}}) {
      const Engine engine = serving(rt, *base, more);
      const int64_t now = loaded(engine, training.trainer);
      const Written first = written(engine, training, now), plain = written(engine, training, -1);
      CHECK(first == written(engine, training, loaded(engine, path)));
      CHECK(first != plain);
      if (more.size() == 1) CHECK(plain == written(blocks, training, -1));
      CHECK(furthest(engine, training, now) < (more.size() == 4 ? 0.2 : 1e-5));  // blocks and halves; else orders of sums
    }
  }
  tsr_engine* made = nullptr;
  const Options alone = options({{"adapter_on", std::string("blocks,head")}});
  const Error error = take(tsr_engine_new(rt.get(), tied.get(), alone.get(), &made));
  CHECK(has(error, "set adapters to the number that a step mixes"));
}

TEST_CASE("adapters of tables are served where the engine has room for them, of one that is the head too") {
  const Runtime rt = runtime();
  const Scratch scratch;
  const Setting tables = {"adapter_on", std::string("blocks,tables")}, both = {"adapter_on", std::string("blocks,head,tables")};
  for (const bool with_head : {false, true}) {
    const std::string on = with_head ? "embed_tokens,q_proj,lm_head" : "embed_tokens,q_proj";
    const std::string start = scratch / (with_head ? "start-head" : "start");
    export_peft(with_adapters(described(kUntied), {{"on", on}, {"alpha", 7.0}}), start);
    for (const char* size : {kUntied, kTied}) {
      const Model base = described(size);
      tsr_model* made = nullptr;
      ok(tsr_model_load_adapters(base.get(), start.c_str(), nullptr, &made));
      const Model adapted(made);
      const Training training(rt, adapted);
      training.update(2);
      ok(tsr_trainer_store(training.trainer.get(), adapted.get()));
      const std::string name = std::string(size == kTied ? "tied" : "untied") + (with_head ? "-head" : "");
      const std::string path = scratch / name.c_str();
      export_peft(adapted, path);
      for (const auto& more : std::vector<std::vector<Setting>>{
               {both},
               {both, {"devices", std::string("cpu:2")}, {"parallel", std::string("tp=2")}},
               {both, {"speculation", std::string("ngram")}, {"embeddings", kOne}},
               {both, {"weights", std::string("q8_0")}, {"precision", std::string("bf16")}, {"adapter_type", std::string("bf16")}}}) {
        const Engine engine = serving(rt, base, more);
        const int64_t now = loaded(engine, training.trainer);
        const Written first = written(engine, training, now), plain = written(engine, training, -1);
        CHECK(first == written(engine, training, loaded(engine, path)));
        CHECK(first != plain);
        if (more.size() == 1) CHECK(plain == written(serving(rt, base), training, -1));
        CHECK(furthest(engine, training, now) < (more.size() == 4 ? 0.2 : 1e-5));  // blocks and halves; else orders of sums
      }
      const Error error = refusal(serving(rt, base, {tables}), training.trainer);
      CHECK((with_head ? has(error, "are of the head") : error.code == TSR_OK));
    }
  }
}

TEST_CASE("a trainer's adapter is refused over another base, and where it cannot be applied to requests") {
  const Runtime rt = runtime();
  const Model base = described(kUntied), adapted = with_adapters(base);
  const Engine engine = serving(rt, base);
  const auto refused = [&](const Model& model, std::vector<Setting> more = {}) {
    const Training training(rt, model, std::move(more));
    return refusal(engine, training.trainer);
  };
  CHECK(has(refused(base), "no low-rank adapters"));
  CHECK(has(refused(with_adapters(base, {{"rank", int64_t{7}}})), "is 7, slots have room for 6: raise adapter_rank"));
  CHECK(has(refused(with_adapters(base, {{"dora", kOne}})), "block.0.q.lora_magnitude"));
  CHECK(has(refused(with_adapters(base, {{"also", std::string("final_norm")}})), "'final_norm', which trains in full"));
  const Error table = refused(with_adapters(base, {{"on", std::string("embed_tokens")}}));
  CHECK(has(table, "of the table 'token_embedding'"));
  CHECK(has(table, "set adapter_on to blocks,tables "));
  const Error shape = refused(with_adapters(described("llama:L=2,C=32,H=4,KV=2,F=40,V=64,T=64,rope_half")));
  CHECK(shape.code == TSR_INVALID_ARGUMENT);
  CHECK(has(shape, "is f32[40, 32] there, the served model has f32[48, 32]"));
  const Error values = refused(with_adapters(described(kUntied, 8)));
  CHECK(values.code == TSR_INVALID_ARGUMENT);
  CHECK(has(values, "its base has other values: '"));
  CHECK(has(values, "as number 0 there"));
  CHECK(refused(with_adapters(described(kUntied, 7))).code == TSR_OK);  // the same again
  {
    const Training training(rt, adapted);
    const std::vector<float> own = parameter(training.trainer, "final_norm");
    std::vector<float> other = own;
    other[5] += 1;
    const auto write = [&](const std::vector<float>& value) {
      ok(tsr_trainer_write(training.trainer.get(), "final_norm", tensor_f32({32}, value).get()));
      return refusal(engine, training.trainer);
    };
    CHECK(has(write(other), "'final_norm' has 2 as number 5 there, 1 as number 5 in the served model"));
    CHECK(write(own).code == TSR_OK);
    const Scratch scratch;
    tsr_work* saving = nullptr;
    ok(tsr_checkpoint_begin(training.trainer.get(), (scratch / "checkpoint").c_str(), &saving));
    const Work work(saving);
    CHECK(refusal(engine, training.trainer).code == TSR_BUSY);
    CHECK(refusal(serving(rt, base, {{"adapters", int64_t{0}}}), training.trainer).code == TSR_FAILED_PRECONDITION);
    int64_t adapter = 0;
    CHECK(take(tsr_engine_load_adapter_from_trainer(engine.get(), nullptr, &adapter)).code == TSR_INVALID_ARGUMENT);
    CHECK(take(tsr_engine_load_adapter_from_model(engine.get(), nullptr, &adapter)).code == TSR_INVALID_ARGUMENT);
  }
}
