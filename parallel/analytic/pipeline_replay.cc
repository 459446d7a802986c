#include "parallel/analytic/pipeline_replay.h"

#include <algorithm>

#include "parallel/analytic/zero_bubble_replay.h"

namespace tessera {

namespace {

struct Task {
  bool backward;
  int32_t chunk;
  int64_t micro_batch;
};

// The order in which passes of one direction come on an interleaved device: groups of `devices` micro-batches
// go through all its chunks in turn.
Task nth_pass(bool backward, int64_t i, int32_t devices, int32_t chunks) {
  const int64_t group = i / (int64_t{devices} * chunks), within = i % (int64_t{devices} * chunks);
  const auto chunk = static_cast<int32_t>(within / devices);
  return {backward, backward ? chunks - 1 - chunk : chunk, group * devices + within % devices};
}

std::vector<Task> order(ForeignSchedule schedule, int32_t device, int32_t devices, int32_t chunks,
                        int64_t m) {
  const int64_t all = m * chunks;
  int64_t ahead = 0;  // forward passes before the first backward pass
  if (schedule == ForeignSchedule::kGpipe)
    ahead = all;
  else if (chunks == 1)
    ahead = std::min<int64_t>(all, devices - device);
  else
    ahead = std::min<int64_t>(all, int64_t{devices - device - 1} * 2 + int64_t{chunks - 1} * devices + 1);
  std::vector<Task> tasks;
  tasks.reserve(static_cast<size_t>(2 * all));
  for (int64_t i = 0; i < ahead; ++i) tasks.push_back(nth_pass(false, i, chunks == 1 ? 1 : devices, chunks));
  for (int64_t i = 0; i < all; ++i) {
    tasks.push_back(nth_pass(true, i, chunks == 1 ? 1 : devices, chunks));
    if (ahead + i < all) tasks.push_back(nth_pass(false, ahead + i, chunks == 1 ? 1 : devices, chunks));
  }
  return tasks;
}

}  // namespace

ReplayedPipeline replay_pipeline(ForeignSchedule schedule, int32_t devices, int32_t chunks, int64_t m,
                                 std::span<const StageTime> times, double transfer_s,
                                 std::vector<ReplayedPass>* passes, double most_s) {
  if (schedule >= ForeignSchedule::kZbH1)
    return replay_zero_bubble(schedule, devices, m, times, transfer_s, passes, most_s);
  const int32_t stages = devices * chunks;
  ReplayedPipeline replay;
  std::vector<double> left(static_cast<size_t>(devices), 0);  // to do
  for (int32_t stage = 0; stage < stages; ++stage) {
    const StageTime& time = times[static_cast<size_t>(stage)];
    left[static_cast<size_t>(stage % devices)] +=
        static_cast<double>(m) * (time.forward_s + time.backward_s) * (1 - 1e-12);
  }
  replay.makespan_s = INFINITY;
  if (std::ranges::max(left) >= most_s) return replay;
  const auto at = [m](int32_t stage, int64_t micro_batch) {
    return static_cast<size_t>(stage * m + micro_batch);
  };
  std::vector<double> forward(static_cast<size_t>(stages * m), -1),
      backward(static_cast<size_t>(stages * m), -1);
  std::vector<std::vector<Task>> orders;
  for (int32_t d = 0; d < devices; ++d) orders.push_back(order(schedule, d, devices, chunks, m));
  std::vector<size_t> next(static_cast<size_t>(devices), 0);
  std::vector<double> clock(static_cast<size_t>(devices), 0);
  std::vector<int64_t> live(static_cast<size_t>(devices), 0);
  replay.busy_s.assign(static_cast<size_t>(devices), 0);
  replay.peak_live.assign(static_cast<size_t>(devices), 0);
  const double hop = devices > 1 ? transfer_s : 0;

  // Each device goes as far as its inputs allow; whoever moved may let its neighbours move.
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t d = 0; d < devices; ++d) {
      const auto self = static_cast<size_t>(d);
      while (next[self] < orders[self].size()) {
        const Task task = orders[self][next[self]];
        const int32_t stage = task.chunk * devices + d;
        double ready = 0;
        if (!task.backward && stage > 0) ready = forward[at(stage - 1, task.micro_batch)];
        if (task.backward)
          ready = stage == stages - 1 ? forward[at(stage, task.micro_batch)]
                                      : backward[at(stage + 1, task.micro_batch)];
        if (ready < 0) break;
        if (task.backward ? stage < stages - 1 : stage > 0) ready += hop;
        const StageTime& time = times[static_cast<size_t>(stage)];
        const double busy = task.backward ? time.backward_s : time.forward_s;
        clock[self] = std::max(clock[self], ready) + busy;
        (task.backward ? backward : forward)[at(stage, task.micro_batch)] = clock[self];
        if (passes != nullptr)
          passes->push_back(
              {d, stage, task.micro_batch, task.backward, false, clock[self] - busy, clock[self]});
        replay.busy_s[self] += busy;
        left[self] -= busy;
        if (clock[self] + left[self] >= most_s) return replay;
        live[self] += task.backward ? -1 : 1;
        replay.peak_live[self] = std::max(replay.peak_live[self], live[self]);
        ++next[self];
        moved = true;
      }
    }
  }
  replay.makespan_s = *std::max_element(clock.begin(), clock.end());
  return replay;
}

}  // namespace tessera
