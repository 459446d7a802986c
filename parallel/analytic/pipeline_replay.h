// A pipeline schedule replayed: each stage works through its own order of passes; a pass starts when its
// input is there. Costs 2 * m * stages * chunks steps.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "parallel/analytic/foreign_plan.h"

namespace tessera {

// One chunk of blocks on one device: virtual stage v = chunk * devices + device, but for zb-v (device_of).
struct StageTime {
  double forward_s = 0, backward_s = 0;
  double weight_s = 0;  // of backward: gradients of weights, put off by schedules that split the pass
};

struct ReplayedPipeline {
  double makespan_s = 0;           // zero-bubble schedules: the longest of a device, first pass to last
  std::vector<double> busy_s;      // by device
  std::vector<int64_t> peak_live;  // by device: chunks whose activations are held at once, at most
};

// One pass as it was replayed, for timelines.
struct ReplayedPass {
  int32_t device = 0, stage = 0;  // stage: virtual
  int64_t micro_batch = 0;
  bool backward = false;
  bool weight = false;  // gradients of weights alone; then `backward` is that of inputs
  double begin_s = 0, end_s = 0;
};

// No replay of 1f1b, gpipe or interleaved takes less, found in time linear in the stages.
double pipeline_floor(ForeignSchedule schedule, int32_t devices, int32_t chunks, int64_t micro_batches,
                      std::span<const StageTime> times, double transfer_s);

// times by virtual stage (size devices * chunks); transfer_s passes between two virtual stages on different
// devices. `passes`, where given, takes every pass, those of one device in order. Of pipelines of `most_s` or
// more only that much need be known: their makespan may be infinite, and the rest is not filled then.
ReplayedPipeline replay_pipeline(ForeignSchedule schedule, int32_t devices, int32_t chunks,
                                 int64_t micro_batches, std::span<const StageTime> times, double transfer_s,
                                 std::vector<ReplayedPass>* passes = nullptr, double most_s = INFINITY);

}  // namespace tessera
