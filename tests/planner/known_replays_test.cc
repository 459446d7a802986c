#include "parallel/analytic/known_replays.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "parallel/analytic/zero_bubble_replay.h"

using namespace tessera;

namespace {

std::vector<StageTime> random_times(std::mt19937& random, size_t stages) {
  std::uniform_real_distribution<double> share(0.5, 1.5);
  std::vector<StageTime> times;
  for (size_t i = 0; i < stages; ++i) {
    const double forward = share(random), weight = share(random);
    times.push_back({forward, weight + share(random), weight});
  }
  return times;
}

}  // namespace

TEST_CASE(
    "a pipeline replayed before takes what it takes when it is replayed anew, whatever was asked first") {
  std::mt19937 random(5);
  int remembered = 0;
  for (int round = 0; round < 200; ++round) {
    const auto schedule = static_cast<ForeignSchedule>(static_cast<int>(ForeignSchedule::kZbH1) + round % 3);
    const auto devices = static_cast<int32_t>(1 + random() % 5);
    const auto m = static_cast<int64_t>(1 + random() % 8);
    const std::vector<StageTime> times =
        random_times(random, static_cast<size_t>(devices) * (schedule == ForeignSchedule::kZbV ? 2 : 1));
    const ReplayedPipeline whole = replay_zero_bubble(schedule, devices, m, times, 0.1);
    const double least = zero_bubble_bound(schedule, devices, m, times);
    KnownReplays known;
    for (int i = 0; i < 12; ++i) {
      constexpr double kShares[] = {0.9, 0.999, 1, 1.001, 1.1, INFINITY};
      const double share = kShares[random() % std::size(kShares)];
      const double most_s = (random() % 2 == 0 ? whole.makespan_s : least) * share;
      const ReplayedPipeline anew = replay_zero_bubble(schedule, devices, m, times, 0.1, nullptr, most_s);
      const ReplayedPipeline found = known.replay(schedule, devices, m, times, 0.1, most_s);
      if (anew.makespan_s >= most_s) {
        CHECK(found.makespan_s >= most_s);
        continue;
      }
      ++remembered;
      CHECK(found.makespan_s == anew.makespan_s);
      CHECK(found.busy_s == anew.busy_s);
      CHECK(found.peak_live == anew.peak_live);
    }
    // Of another pipeline nothing is known.
    std::vector<StageTime> other = times;
    other.back().forward_s += 1;
    CHECK(known.replay(schedule, devices, m, other, 0.1, INFINITY).makespan_s ==
          replay_zero_bubble(schedule, devices, m, other, 0.1).makespan_s);
  }
  CHECK(remembered > 500);
}
