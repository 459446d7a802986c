// Shares of the cores: training and inference that take turns compute the same bits; engines on a trainer's weights between the
// micro-batches of its steps.
#include <string>
#include <thread>
#include <vector>

#include "tests/capi/engine_events.h"
#include "tests/capi/small_training.h"

using namespace capi_test;
using tessera::Json;

namespace {

constexpr const char* kModel = "llama:L=2,C=32,H=4,KV=2,F=48,V=256,T=64";
constexpr int kSteps = 6;

Json share_of(const Runtime& rt) {
  return Json::parse(text([&](auto... out) { return tsr_runtime_share(rt.get(), out...); }));
}

void set_share(const Runtime& rt, double share) {
  ok(tsr_runtime_set_share(rt.get(), options({{"inference_share", share}}).get()));
}

Trainer trainer_of(const Runtime& rt, const Model& model, const char* devices, const char* parallel, int64_t accumulate = 1) {
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), model.get(), bytes_dataset().get(),
                     options({{"devices", std::string(devices)},
                              {"parallel", std::string(parallel)},
                              {"batch", 8},
                              {"accumulate", accumulate},
                              {"lr", 0.01}})
                         .get(),
                     &made));
  return Trainer(made);
}

// The losses of some steps; the last has all of the weights in it.
std::vector<double> losses(const Trainer& trainer) {
  std::vector<double> all;
  for (int step = 0; step < kSteps; ++step) all.push_back(one_step(trainer));
  return all;
}

std::vector<int32_t> greedy(const Engine& engine, const std::vector<int32_t>& prompt, int64_t count) {
  int64_t request = 0;
  ok(tsr_engine_submit_tokens(engine.get(), options({{"temperature", 0.0}, {"max_tokens", count}, {"ignore_eos", 1}}).get(),
                              prompt.data(), prompt.size(), &request));
  std::vector<int32_t> tokens;
  for (;;) {
    const tsr_event event = next(engine);
    INFO(std::string(event.details));
    CHECK(event.finish != TSR_FINISH_FAILED);
    if (event.kind == TSR_EVENT_TOKEN && event.token >= 0) tokens.push_back(event.token);
    if (event.kind == TSR_EVENT_END) return tokens;
  }
}

const std::vector<int32_t> kPrompt = {'t', 'h', 'e', ' ', 't', 'i', 'l', 'e'};

}  // namespace

TEST_CASE("training and an engine that take turns compute what each does alone, bit for bit") {
  const Model served = bytes_model(), trained = described(kModel);
  struct Case {
    const char *devices, *parallel;
    int64_t accumulate;
  };
  for (const Case& it : {Case{"cpu:1", "mb=2", 1}, {"cpu:1", "", 2}, {"cpu:2", "dp=2,mb=2", 1}, {"cpu:2", "pp=2,mb=2", 1}}) {
    INFO(std::string(it.parallel));
    std::vector<double> alone;
    std::vector<int32_t> expected;
    {
      const Runtime rt = runtime();
      alone = losses(trainer_of(rt, trained, it.devices, it.parallel, it.accumulate));
      expected = greedy(engine(rt, served), kPrompt, 12);
    }
    for (const double share : {0.0, 0.5, 1.0}) {
      const Runtime rt = runtime();
      set_share(rt, share);
      const Trainer trainer = trainer_of(rt, trained, it.devices, it.parallel, it.accumulate);
      const Engine serving = engine(rt, served);
      std::vector<double> found;
      std::thread training([&] { found = losses(trainer); });
      for (int i = 0; i < 3; ++i) CHECK(greedy(serving, kPrompt, 12) == expected);
      training.join();
      CHECK(found == alone);
      const Json report = share_of(rt);
      CHECK(report["inference_share"] == share);
      CHECK(report["inference"]["turns"] >= 36);
      CHECK(report["training"]["turns"] >= kSteps);
      CHECK(report["inference"]["longest_wait_micro_batches"] <= 1);
    }
  }
}

TEST_CASE("an engine on a trainer's weights computes between micro-batches, and changes no bit of the training") {
  for (const char* parallel : {"mb=2", "dp=2,mb=2", "dp=2,zero=1,mb=2"}) {
    INFO(std::string(parallel));
    const Model model = bytes_model(kModel, 7);
    const char* devices = parallel[0] == 'd' ? "cpu:2" : "cpu:1";
    std::vector<double> alone;
    {
      const Runtime rt = runtime();
      alone = losses(trainer_of(rt, model, devices, parallel));
    }
    const Runtime rt = runtime();
    set_share(rt, 0.5);
    const Trainer trainer = trainer_of(rt, model, devices, parallel);
    tsr_engine* made = nullptr;
    ok(tsr_engine_new_for_trainer(trainer.get(), options({{"context", 64}, {"sequences", 4}}).get(), &made));
    const Engine serving(made);
    std::vector<double> found;
    std::thread training([&] { found = losses(trainer); });
    for (int i = 0; i < 3; ++i) CHECK(greedy(serving, kPrompt, 8).size() == 8);
    training.join();
    CHECK(found == alone);
    // The weights after the last update: those of an engine over the stored model.
    const std::vector<int32_t> after = greedy(serving, kPrompt, 8);
    ok(tsr_trainer_store(trainer.get(), model.get()));
    CHECK(after == greedy(engine(rt, model), kPrompt, 8));
    ok(tsr_runtime_set_share(rt.get(), nullptr));
    CHECK(share_of(rt)["inference_share"].is_null());
  }
}

TEST_CASE("shares of two runtimes are one once they join; without one nothing is counted") {
  const Runtime serving = runtime(), training = runtime();
  ok(tsr_runtime_join_share(training.get(), serving.get()));
  const Model model = described(kModel);
  const Trainer trainer = trainer_of(training, model, "cpu:1", "");
  (void)one_step(trainer);
  CHECK(share_of(serving)["training"]["turns"] == 0);
  set_share(serving, 0.25);
  (void)one_step(trainer);
  CHECK(share_of(serving)["training"]["turns"] >= 1);
  CHECK(share_of(training)["inference_share"] == 0.25);
}

TEST_CASE("shares outside of 0 to 1, and other options, are refused") {
  const Runtime rt = runtime();
  const Error above = take(tsr_runtime_set_share(rt.get(), options({{"inference_share", 1.5}}).get()));
  CHECK(above.code == TSR_INVALID_ARGUMENT);
  CHECK(above.message.find("1.5") != std::string::npos);
  const Error other = take(tsr_runtime_set_share(rt.get(), options({{"inference_shares", 0.5}}).get()));
  CHECK(other.code == TSR_INVALID_ARGUMENT);
  CHECK(other.message.find("inference_share") != std::string::npos);
}
