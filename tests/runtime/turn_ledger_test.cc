// Turns of inference and training, with a clock of the test: their order, shares and waits.
#include "runtime/turn_ledger.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

namespace tessera {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr CoreSide kInference = CoreSide::kInference, kTraining = CoreSide::kTraining;

CoreInstant at(int64_t ms) { return {ms * kMs, 2 * ms * kMs}; }

TurnLedger shared(double share) {
  TurnLedger ledger;
  ledger.set_share(share, at(0));
  return ledger;
}

TEST_CASE("without_a_share_nobody_waits") {
  TurnLedger ledger;
  const auto training = ledger.arrive(kTraining, at(0));
  REQUIRE(ledger.may_begin(training, at(0)));
  ledger.begin(training, at(0));
  CHECK(ledger.may_begin(ledger.arrive(kInference, at(1)), at(1)));
  CHECK(!ledger.yields(true, at(2)));
  CHECK(ledger.yield_at_ns() == TurnLedger::kNever);
}

TEST_CASE("a_waiting_step_goes_first_at_the_end_of_the_micro_batch_whatever_the_balance") {
  TurnLedger ledger = shared(0);  // training is always behind
  ledger.begin(ledger.arrive(kTraining, at(0)), at(0));
  CHECK(!ledger.yields(true, at(10)));  // no step waits
  const auto first = ledger.arrive(kInference, at(12)), second = ledger.arrive(kInference, at(13));
  CHECK(!ledger.may_begin(first, at(15)));
  CHECK(!ledger.yields(false, at(19)));  // within the micro-batch
  REQUIRE(ledger.yields(true, at(20)));
  ledger.end(kTraining, at(20));
  const auto training = ledger.arrive(kTraining, at(20));
  CHECK(!ledger.may_begin(training, at(20)));
  REQUIRE(ledger.may_begin(first, at(20)));
  ledger.begin(first, at(20));
  const auto late = ledger.arrive(kInference, at(21));
  CHECK(!ledger.may_begin(late, at(21)));  // it came after the micro-batch, and training is behind
  REQUIRE(ledger.may_begin(second, at(21)));
  ledger.begin(second, at(21));
  ledger.end(kInference, at(22));
  CHECK(!ledger.may_begin(training, at(22)));  // the second still has the cores
  ledger.end(kInference, at(23));
  CHECK(!ledger.may_begin(late, at(23)));
  REQUIRE(ledger.may_begin(training, at(23)));
  CHECK(ledger.most_batches_waited() == 1);
  CHECK(ledger.longest_wait_ns() == 8 * kMs);
  CHECK(ledger.usage(kInference).wall_ns == 3 * kMs);
  CHECK(ledger.usage(kInference).cpu_ns == 6 * kMs);
  CHECK(ledger.usage(kTraining).wall_ns == 20 * kMs);
}

TEST_CASE("training_yields_between_kernels_once_inference_is_behind") {
  TurnLedger ledger = shared(0.5);
  ledger.begin(ledger.arrive(kTraining, at(0)), at(0));
  (void)ledger.arrive(kInference, at(100));
  CHECK(ledger.yield_at_ns() == 110 * kMs);  // half of the time since 100 is a debt of 5 ms
  CHECK(!ledger.yields(false, at(109)));
  CHECK(ledger.yields(false, at(110)));
}

TEST_CASE("cores_stay_reserved_between_steps_only_while_inference_is_behind_and_steady") {
  TurnLedger ledger = shared(0.5);
  int64_t now = 0;
  const auto step = [&](int64_t takes, int64_t gap) {
    now += gap;
    const auto ticket = ledger.arrive(kInference, at(now));
    REQUIRE(ledger.may_begin(ticket, at(now)));
    ledger.begin(ticket, at(now));
    now += takes;
    ledger.end(kInference, at(now));
  };
  for (int i = 0; i < 20; ++i) step(5, 1);
  const auto training = ledger.arrive(kTraining, at(now));
  CHECK(!ledger.may_begin(training, at(now)));  // the next step comes within a millisecond
  CHECK(ledger.reserved_until_ns() > (now + 1) * kMs);
  CHECK(ledger.may_begin(training, at(now + 20)));
  ledger.give_up(training, at(now));
  for (int i = 0; i < 20; ++i) step(5, 100);
  const auto again = ledger.arrive(kTraining, at(now));
  CHECK(ledger.may_begin(again, at(now)));  // the steps are no steady work
}

TEST_CASE("a_run_that_gives_up_leaves_no_trace") {
  TurnLedger ledger = shared(0.5);
  ledger.begin(ledger.arrive(kTraining, at(0)), at(0));
  const auto step = ledger.arrive(kInference, at(1));
  ledger.end(kTraining, at(2));
  const auto training = ledger.arrive(kTraining, at(2));
  CHECK(!ledger.may_begin(training, at(2)));
  ledger.give_up(step, at(3));
  CHECK(ledger.may_begin(training, at(3)));
}

// Simulated: an engine whose steps of `step` follow each other after `gap`, and a trainer of micro-batches of `kernels`
// kernels; us.
struct Work {
  int64_t step, gap, kernel, kernels;
};

class Simulation {
 public:
  Simulation(double share, const Work& work) : work_(work) { ledger_.set_share(share, now()); }

  // By window of 10 s: inference's share of the time.
  std::vector<double> run(int windows) {
    std::vector<double> shares;
    engine_ready_ = trainer_ready_ = 0;
    for (int window = 0; window < windows; ++window) {
      const int64_t end = (window + 1) * 10'000'000LL;
      const int64_t inference = used(kInference), training = used(kTraining);
      while (us_ < end) advance();
      const double mine = static_cast<double>(used(kInference) - inference);
      shares.push_back(mine / (mine + static_cast<double>(used(kTraining) - training)));
    }
    return shares;
  }
  const TurnLedger& ledger() const { return ledger_; }

 private:
  CoreInstant now() const { return {us_ * 1000, 0}; }
  int64_t used(CoreSide side) {
    ledger_.advance(now());
    return ledger_.usage(side).wall_ns;
  }
  bool try_begin(std::optional<TurnLedger::Ticket>& ticket) {
    if (!ticket || !ledger_.may_begin(*ticket, now())) return false;
    ledger_.begin(*ticket, now());
    ticket.reset();
    return true;
  }
  void advance() {
    if (us_ == engine_ready_) ends_step_ ? end_step() : engine_arrives();
    if (us_ == trainer_ready_) trainer_passes();
    if (try_begin(step_)) engine_ready_ = us_ + work_.step, ends_step_ = true;
    if (try_begin(batch_)) trainer_ready_ = us_ + work_.kernel;
    if (try_begin(step_)) engine_ready_ = us_ + work_.step, ends_step_ = true;
    int64_t next = std::min(engine_ready_, trainer_ready_);
    if (batch_ && ledger_.reserved_until_ns() / 1000 > us_) next = std::min(next, ledger_.reserved_until_ns() / 1000 + 1);
    us_ = next;
  }
  void engine_arrives() {
    step_ = ledger_.arrive(kInference, now());
    engine_ready_ = kNever;
  }
  void end_step() {
    ledger_.end(kInference, now());
    engine_ready_ = us_ + work_.gap, ends_step_ = false;
  }
  void trainer_passes() {
    trainer_ready_ = kNever;
    if (is_new_) {
      is_new_ = false;
      batch_ = ledger_.arrive(kTraining, now());
      return;
    }
    done_ = (done_ + 1) % work_.kernels;
    if (ledger_.yields(done_ == 0, now())) {
      ledger_.end(kTraining, now());
      batch_ = ledger_.arrive(kTraining, now());
    } else {
      trainer_ready_ = us_ + work_.kernel;
    }
  }

  static constexpr int64_t kNever = int64_t{1} << 60;
  const Work work_;
  TurnLedger ledger_;
  int64_t us_ = 0, engine_ready_ = 0, trainer_ready_ = 0, done_ = 0;
  bool ends_step_ = false, is_new_ = true;
  std::optional<TurnLedger::Ticket> step_, batch_;
};

TEST_CASE("shares_of_10_s_are_the_declared_ones_and_no_step_waits_for_two_micro_batches") {
  const Work works[] = {{5000, 500, 2000, 100}, {5000, 500, 500'000, 1}, {20'000, 2000, 10'000, 200}, {1000, 200, 100, 5000}};
  for (const Work& work : works)
    for (const double share : {0.1, 0.25, 0.5, 0.75, 0.9}) {
      Simulation simulation(share, work);
      for (const double found : simulation.run(4)) {
        CAPTURE(work.kernel);
        CAPTURE(share);
        CHECK(std::abs(found - share) < 0.1);
      }
      CHECK(simulation.ledger().most_batches_waited() <= 1);
    }
}

// Steps longer than a micro-batch: the bound on the wait wins over the share.
TEST_CASE("long_steps_wait_for_one_micro_batch_too") {
  Simulation simulation(0.25, {300'000, 500, 10'000, 10});
  CHECK(simulation.run(2).back() > 0.7);
  CHECK(simulation.ledger().most_batches_waited() <= 1);
}

}  // namespace
}  // namespace tessera
