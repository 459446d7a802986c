// Schedules that split the backward pass, made and timed in one go: every device takes what is most urgent of
// what is ready, within a bound on what it holds, and does gradients of weights when nothing else can run.
// The best of a few rules; deterministic.
//   zb-h1  holds p micro-batches a device, as much as 1F1B's first stage
//   zb-h2  2p - 1
//   zb-v   two chunks a device, in a V: device d has virtual stages d and 2p - 1 - d; 2p chunks held
#pragma once

#include <cmath>

#include "parallel/analytic/pipeline_replay.h"

namespace tessera {

// Chunks that a device may hold: forward done, gradients of weights not.
int64_t zero_bubble_limit(ForeignSchedule schedule, int32_t devices);

// No order of passes takes less. A device does all its work; its first input gradient waits for the way to
// the last stage and back, while no more forward passes are done than may be held; its last one comes back
// from devices that have had all others; and a device further on does its work before that, but for the
// gradients of weights that may still be put off.
double zero_bubble_bound(ForeignSchedule schedule, int32_t devices, int64_t micro_batches,
                         std::span<const StageTime> times);

// As replay_pipeline. What a step takes when steps follow each other is the longest time of a device, from
// its first pass to its last; devices need not start or end together.
ReplayedPipeline replay_zero_bubble(ForeignSchedule schedule, int32_t devices, int64_t micro_batches,
                                    std::span<const StageTime> times, double transfer_s,
                                    std::vector<ReplayedPass>* passes = nullptr, double most_s = INFINITY);

}  // namespace tessera
