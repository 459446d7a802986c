// Runs that take turns: waits, cancellation, runs of several threads.
#include "runtime/core_arbiter.h"

#include <doctest/doctest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

namespace tessera {
namespace {

constexpr CoreSide kInference = CoreSide::kInference, kTraining = CoreSide::kTraining;
using Turn = CoreArbiter::Turn;

const std::atomic<bool> kGoesOn = false;

// A clock that the test moves; time passes at no other moment.
struct Clock {
  std::atomic<int64_t> ns{0};
  CoreArbiter::Clock function() {
    return [this] { return CoreInstant{ns.load(), 0}; };
  }
};

void wait_until(const auto& condition) {
  while (!condition()) std::this_thread::yield();
}

TEST_CASE("without_a_share_turns_overlap_and_are_not_counted") {
  CoreArbiter arbiter;
  const Turn training(arbiter, kTraining, kGoesOn), inference(arbiter, kInference, kGoesOn);
  CHECK(arbiter.report().training.turns == 0);
  CHECK(!arbiter.report().inference_share);
}

TEST_CASE("a_step_begins_when_training_passes_a_micro_batch_and_training_goes_on_after_it") {
  Clock clock;
  CoreArbiter arbiter(clock.function());
  arbiter.set_share(0.0);  // training is behind as soon as a step has taken time
  std::vector<int> order;
  std::atomic<bool> is_waiting = false;
  Turn training(arbiter, kTraining, kGoesOn);
  std::thread step([&] {
    is_waiting = true;
    const Turn turn(arbiter, kInference, kGoesOn);
    order.push_back(1);
    clock.ns += 1'000'000;
  });
  wait_until([&] { return is_waiting.load(); });
  order.push_back(0);
  while (arbiter.report().inference.turns == 0) training.pass(true);
  order.push_back(2);
  step.join();
  CHECK(order == std::vector{0, 1, 2});
  CHECK(arbiter.report().inference.wall_ns == 1'000'000);
}

TEST_CASE("a_run_that_is_stopped_while_it_waits_gives_up") {
  for (const bool trains : {false, true}) {
    CoreArbiter arbiter;
    arbiter.set_share(0.5);
    std::atomic<bool> stop = false, has_ended = false;
    std::optional<Turn> first;
    first.emplace(arbiter, trains ? kInference : kTraining, kGoesOn);
    std::thread waiting([&] {
      const Turn turn(arbiter, trains ? kTraining : kInference, stop);
      has_ended = true;
    });
    std::this_thread::yield();
    CHECK(!has_ended);
    stop = true;
    arbiter.wake();
    waiting.join();
    first.reset();
    const Turn next(arbiter, kInference, kGoesOn);  // nobody is in its way
  }
}

TEST_CASE("the_end_of_the_share_frees_all_who_wait") {
  CoreArbiter arbiter;
  arbiter.set_share(0.5);
  const Turn training(arbiter, kTraining, kGoesOn);
  std::thread waiting([&] { const Turn turn(arbiter, kInference, kGoesOn); });
  arbiter.set_share(std::nullopt);
  waiting.join();
}

TEST_CASE("a_turn_within_a_turn_of_the_thread_is_part_of_it") {
  CoreArbiter arbiter;
  arbiter.set_share(0.5);
  const Turn step(arbiter, kInference, kGoesOn);
  const Turn run(arbiter, kInference, kGoesOn);
  CHECK(arbiter.report().inference.turns == 1);
}

// Inference holds what training waits for, and waits for the cores: training has left them.
TEST_CASE("training_that_waits_for_readers_of_its_weights_has_no_turn") {
  CoreArbiter arbiter;
  arbiter.set_share(0.5);
  std::atomic<bool> has_read = false;
  Turn training(arbiter, kTraining, kGoesOn);
  std::thread reader([&] {
    const Turn turn(arbiter, kInference, kGoesOn);
    has_read = true;
  });
  training.leave();
  std::thread rank([&] { training.pass(true); });  // waits with the first
  wait_until([&] { return has_read.load(); });
  reader.join();
  training.resume();
  rank.join();
  CHECK(arbiter.report().training.turns == 2);
}

TEST_CASE("runs_of_many_threads_of_both_sides_all_end_and_the_sides_never_overlap") {
  CoreArbiter arbiter;
  arbiter.set_share(0.5);
  std::atomic<int> inference = 0, training = 0, clashes = 0;
  std::vector<std::thread> runs;
  for (int thread = 0; thread < 3; ++thread) {
    runs.emplace_back([&] {
      for (int run = 0; run < 300; ++run) {
        const Turn turn(arbiter, kInference, kGoesOn);
        ++inference;
        clashes += training > 0;
        --inference;
      }
    });
    runs.emplace_back([&] {
      for (int run = 0; run < 60; ++run) {
        Turn turn(arbiter, kTraining, kGoesOn);
        for (int batch = 0; batch < 5; ++batch) {
          ++training;
          clashes += inference > 0;
          --training;
          turn.pass(true);
        }
      }
    });
  }
  for (std::thread& run : runs) run.join();
  CHECK(clashes == 0);
  CHECK(arbiter.report().inference.turns == 900);
}

}  // namespace
}  // namespace tessera
