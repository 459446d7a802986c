// Idle handles hold no thread: hosts with a garbage collector forget thousands of generators.
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"

using namespace capi_test;

namespace {

int64_t threads() {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

int64_t threads_at_rest(int64_t wanted) {
  for (int wait = 0; wait < 500 && threads() > wanted; ++wait)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return threads();
}

void generate(tsr_generator* generator) {
  ok(tsr_generator_start(generator, "abc", TSR_TEXT_END));
  tsr_piece piece = {};
  piece.struct_size = sizeof piece;
  while (piece.kind != TSR_END) ok(tsr_generator_next(generator, -1, &piece));
}

}  // namespace

TEST_CASE("idle generators and trainers hold no thread, and go on when they are used again") {
  const Runtime rt = runtime();
  const Model model = described_with_bytes("llama:L=1,C=32,H=2,F=32,V=256,T=32", 7);
  std::thread([] {}).join();  // sanitizers begin one of their own with the first
  const int64_t before = threads();
  std::vector<Generator> generators;
  for (int i = 0; i < 12; ++i) {
    tsr_generator* made = nullptr;
    ok(tsr_generator_new(rt.get(), model.get(),
                         options({{"devices", std::string(i % 2 == 0 ? "cpu:1" : "cpu:2")},
                                  {"parallel", std::string(i % 2 == 0 ? "" : "tp=2")},
                                  {"max_tokens", int64_t{3}}})
                             .get(),
                         &made));
    generators.emplace_back(made);
  }
  CHECK(threads() == before);  // before their first text
  for (const Generator& generator : generators) generate(generator.get());
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), model.get(), bytes_dataset().get(),
                     options({{"devices", std::string("cpu:2")},
                              {"parallel", std::string("dp=2")},
                              {"watchdog", 0.0}})
                         .get(),
                     &made));
  const Trainer trainer(made);
  ok(tsr_trainer_step(trainer.get(), nullptr));
  CHECK(threads_at_rest(before) == before);
  for (const Generator& generator : generators) generate(generator.get());
  ok(tsr_trainer_step(trainer.get(), nullptr));
}
