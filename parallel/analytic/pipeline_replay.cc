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

// Forward passes before the first backward pass.
int64_t passes_ahead(ForeignSchedule schedule, int32_t device, int32_t devices, int32_t chunks, int64_t m) {
  const int64_t all = m * chunks;
  if (schedule == ForeignSchedule::kGpipe) return all;
  if (chunks == 1) return std::min<int64_t>(all, devices - device);
  return std::min<int64_t>(all, int64_t{devices - device - 1} * 2 + int64_t{chunks - 1} * devices + 1);
}

std::vector<Task> order(ForeignSchedule schedule, int32_t device, int32_t devices, int32_t chunks,
                        int64_t m) {
  const int64_t all = m * chunks, ahead = passes_ahead(schedule, device, devices, chunks, m);
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

// A device's first backward pass waits until the first micro-batch has been forward through all stages, and
// back through the last chunks of the devices after it. All its backward passes are left then, and all
// forward passes but those that come before; after them the first chunks of the devices before it go back
// once.
double pipeline_floor(ForeignSchedule schedule, int32_t devices, int32_t chunks, int64_t m,
                      std::span<const StageTime> times, double transfer_s) {
  const int32_t stages = devices * chunks;
  const double hop = devices > 1 ? transfer_s : 0;
  double there = (stages - 1) * hop;
  for (const StageTime& time : times) there += time.forward_s;
  double after = 0, before = 0,
         least = 0;  // backward passes of later devices' last chunks, earlier ones' first
  for (int32_t d = 0; d + 1 < devices; ++d) before += times[static_cast<size_t>(d)].backward_s + hop;
  const int64_t round = chunks == 1 ? 1 : devices;
  for (int32_t d = devices; d-- > 0;) {
    const int64_t ahead = passes_ahead(schedule, d, devices, chunks, m);
    double own = 0;
    for (int32_t chunk = 0; chunk < chunks; ++chunk) {
      const StageTime& time = times[static_cast<size_t>(chunk * devices + d)];
      const int64_t done = ahead / (round * chunks) * round +
                           std::clamp<int64_t>(ahead % (round * chunks) - chunk * round, 0, round);
      own += static_cast<double>(m) * time.backward_s + static_cast<double>(m - done) * time.forward_s;
    }
    least = std::max(least, there + after + own + before);
    after += times[static_cast<size_t>(stages - devices + d)].backward_s + hop;
    if (d > 0) before -= times[static_cast<size_t>(d) - 1].backward_s + hop;
  }
  return least;
}

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
  const double floor = (1 - 1e-12) * pipeline_floor(schedule, devices, chunks, m, times, transfer_s);
  if (std::max(floor, std::ranges::max(left)) >= most_s) return replay;
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
