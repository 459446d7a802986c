// Callers whose threads have little stack train and generate all the same: tiles of kernels lie elsewhere,
// and the library's threads have stacks of their own size.
#include <pthread.h>
#include <sys/resource.h>

#include <cmath>

#include "tests/capi/small_training.h"

using namespace capi_test;

namespace {

constexpr size_t kLittleBytes = size_t{128} << 10;

// Runs `body` on a thread with little stack, while little is also the process's default for new threads.
template <class Body>
void run_with_little_stack(Body body) {
  pthread_attr_t little;
  REQUIRE(pthread_attr_init(&little) == 0);
  REQUIRE(pthread_attr_setstacksize(&little, kLittleBytes) == 0);
  pthread_attr_t before;
  REQUIRE(pthread_getattr_default_np(&before) == 0);
  REQUIRE(pthread_setattr_default_np(&little) == 0);
  pthread_t thread{};
  const auto run = [](void* opaque) -> void* {
    (*static_cast<Body*>(opaque))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &little, run, &body) == 0);
  REQUIRE(pthread_join(thread, nullptr) == 0);
  REQUIRE(pthread_setattr_default_np(&before) == 0);
  pthread_attr_destroy(&before);
  pthread_attr_destroy(&little);
}

}  // namespace

TEST_CASE("a thread with 128 KiB of stack plans, trains and generates") {
  bool done = false;
  run_with_little_stack([&] {
    // The largest head that tiles hold.
    const Model model = described_with_bytes("llama:L=1,C=256,H=1,F=64,V=256,T=64", 3);
    const Dataset dataset = repeated_text("the quick brown fox ", 60, 32, 0.1);
    const Runtime rt = runtime();
    for (const char* devices : {"cpu:1", "cpu:2"}) {
      tsr_trainer* made = nullptr;
      ok(tsr_trainer_new(rt.get(), model.get(), dataset.get(),
                         options({{"devices", std::string(devices)}, {"batch", int64_t{4}}}).get(), &made));
      const Trainer trainer(made);
      tsr_step step = {};
      step.struct_size = sizeof step;
      ok(tsr_trainer_step(trainer.get(), &step));
      CHECK(std::isfinite(step.loss));
    }
    tsr_generator* made = nullptr;
    ok(tsr_generator_new(rt.get(), model.get(), options({{"max_tokens", int64_t{4}}}).get(), &made));
    const Generator generator(made);
    ok(tsr_generator_start(generator.get(), "the", TSR_TEXT_END));
    tsr_piece piece = {};
    piece.struct_size = sizeof piece;
    while (piece.kind != TSR_END) ok(tsr_generator_next(generator.get(), -1, &piece));
    done = true;
  });
  CHECK(done);
}
