// A model whose parameters and optimizer state are four times a device's memory limit trains with offload, to
// the bit as it does without.
#include <cmath>

#include "c_api.h"
#include "tests/number_after.h"

using namespace capi_test;
using tessera::test::number_after;

namespace {

constexpr int64_t kParameters = 64 * 32 + 24 * (4 * 32 * 32 + 3 * 32 * 64 + 2 * 32) + 32;
constexpr int64_t kStationary = 12 * kParameters;  // f32, with two moments

Model deep_llama() {
  tsr_model* made = nullptr;
  ok(tsr_model_new("llama:L=24,C=32,H=4,F=64,V=64,T=8,tied=1", options({{"seed", int64_t{3}}}).get(), &made));
  return Model(made);
}

Dataset letters(const Model& model) {
  (void)model;
  std::vector<int32_t> tokens(2000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 61);
  tsr_dataset* made = nullptr;
  ok(tsr_dataset_new_tokens(tokens.data(), tokens.size(), options({{"seq", int64_t{8}}}).get(), &made));
  return Dataset(made);
}

Error make(const Runtime& rt, const Model& model, const Dataset& data, const std::string& parallel,
           int64_t limit, int64_t host_limit, Trainer& out) {
  Options chosen = options(
      {{"devices", std::string("cpu:1")}, {"parallel", parallel}, {"batch", int64_t{2}}, {"lr", 3e-3}});
  if (limit > 0) ok(tsr_options_set_i64(chosen.get(), "memory_limit", limit));
  if (host_limit > 0) ok(tsr_options_set_i64(chosen.get(), "host_memory_limit", host_limit));
  tsr_trainer* made = nullptr;
  const Error error = take(tsr_trainer_new(rt.get(), model.get(), data.get(), chosen.get(), &made));
  out.reset(made);
  return error;
}

std::vector<double> steps(const Trainer& trainer, int count) {
  std::vector<double> all;
  for (int i = 0; i < count; ++i) {
    tsr_step info = {};
    info.struct_size = sizeof info;
    ok(tsr_trainer_step(trainer.get(), &info));
    all.push_back(info.loss);
  }
  return all;
}

std::vector<float> read(const Trainer& trainer, const char* name) {
  tsr_tensor* value = nullptr;
  ok(tsr_trainer_read(trainer.get(), name, &value));
  return floats(Tensor(value).get());
}

}  // namespace

TEST_CASE("what is offloaded to host memory counts under the limit of a CPU device, whose memory that is") {
  const Runtime rt = runtime();
  tsr_model* made = nullptr;
  ok(tsr_model_new("llama:L=1,C=32,H=4,F=64,V=64,T=8,tied=1", nullptr, &made));
  const Model model(made);
  const Dataset data = letters(model);
  constexpr int64_t kState = 12 * (64 * 32 + 4 * 32 * 32 + 3 * 32 * 64 + 3 * 32);
  constexpr int64_t kLimit = 140 << 10;  // what is on the device at once fits
  Trainer trainer;
  const Error counted =
      make(rt, model, data, "mb=1,recompute=full,offload=params+grads+optimizer", kLimit, 0, trainer);
  CHECK(counted.code == TSR_OUT_OF_MEMORY);
  CHECK(number_after(counted.message, " (") > kState);
  const std::string in_file = "mb=1,recompute=full,offload=params@file+grads@file+optimizer@file";
  CHECK(make(rt, model, data, in_file, kLimit, 0, trainer).code == TSR_OK);
}

TEST_CASE("a model four times the memory limit trains with offload, to the bit as without") {
  const Runtime rt = runtime();
  const Model model = deep_llama();
  const Dataset data = letters(model);
  Trainer free;
  REQUIRE(make(rt, model, data, "mb=1,recompute=full", 0, 0, free).code == TSR_OK);
  const std::vector<double> wanted = steps(free, 4);

  const int64_t limit = kStationary / 4;
  Trainer refused;
  CHECK(make(rt, model, data, "offload=none", limit, 0, refused).code == TSR_OUT_OF_MEMORY);
  struct Way {
    std::string words;
    int64_t limit, host_limit;  // 0: none
  };
  // Through a file the host holds the buffers of one layer at a time, under a limit of its own. The planner alone
  // finds that, too.
  for (const auto& [words, device_limit, host_limit] :
       {Way{"mb=1,recompute=full,offload=params+grads+optimizer", 0, 0},
        Way{"offload=auto,recompute=full,mb=1", limit, kStationary / 8},
        Way{"mb=1,recompute=full,offload=params@file+grads@file+optimizer@file", limit, kStationary / 8}}) {
    INFO(words);
    Trainer trainer;
    const Error error = make(rt, model, data, words, device_limit, host_limit, trainer);
    INFO(error.message);
    REQUIRE(error.code == TSR_OK);
    CHECK(steps(trainer, 4) == wanted);
    for (const char* name : {"token_embedding", "block.23.down", "block.0.q.m", "block.11.gate.v"})
      CHECK(read(trainer, name) == read(free, name));
  }
}
