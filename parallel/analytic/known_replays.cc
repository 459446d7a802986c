#include "parallel/analytic/known_replays.h"

#include <cmath>
#include <utility>

#include "parallel/analytic/zero_bubble_replay.h"

namespace tessera {

namespace {

ReplayedPipeline too_long() {
  ReplayedPipeline replay;
  replay.makespan_s = INFINITY;
  return replay;
}

}  // namespace

ReplayedPipeline KnownReplays::replay(ForeignSchedule schedule, int32_t devices, int64_t micro_batches,
                                      std::span<const StageTime> times, double transfer_s, double most_s) {
  const double least = zero_bubble_bound(schedule, devices, micro_batches, times);
  if (least * (1 - 1e-9) >= most_s) return too_long();  // as most are: nothing to remember
  std::vector<double> key = {static_cast<double>(schedule), static_cast<double>(devices),
                             static_cast<double>(micro_batches), transfer_s};
  key.reserve(key.size() + 3 * times.size());
  for (const StageTime& time : times) key.insert(key.end(), {time.forward_s, time.backward_s, time.weight_s});
  {
    const std::scoped_lock lock(mutex_);
    if (const auto at = known_.find(key); at != known_.end()) {
      const Known& known = at->second;
      if (known.exact) return known.replay.makespan_s < most_s ? known.replay : too_long();
      if (std::isinf(known.replay.makespan_s) && most_s <= known.most_s) return too_long();
    }
  }
  Known made{replay_zero_bubble(schedule, devices, micro_batches, times, transfer_s, nullptr, most_s),
             most_s};
  made.exact = made.replay.makespan_s < most_s && most_s > least * (1 + 1e-8);
  ReplayedPipeline answer = made.replay;
  if (made.exact || std::isinf(made.replay.makespan_s)) {
    const std::scoped_lock lock(mutex_);
    Known& known = known_[std::move(key)];
    if (!known.exact && (made.exact || made.most_s > known.most_s)) known = std::move(made);
  }
  return answer;
}

}  // namespace tessera
