// Step time composed from the profile of a model with few blocks: a replay of the schedule with the passes of every stage's blocks.
#pragma once

#include <span>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "parallel/composition/composed_memory.h"
#include "parallel/composition/step_profile.h"
#include "parallel/pipeline/pipeline_replay.h"

namespace tessera {

struct ComposedTime {
  double step_s = 0;
  double passes_s = 0;  // until the last device has finished its actions
  double update_s = 0;  // of the slowest device, after that
  int32_t slowest = 0;  // pipeline device with the slowest passes of one micro-batch
};

// Arguments as in composed_memory.
Result<ComposedTime> composed_time(std::span<const StepProfile> variants, const ComposedStages& stages,
                                   const Cluster& cluster, ScheduleCache* schedules = nullptr);

// ComposedRun: the timing of a step's actions.
struct ComposedRun {
  ComposedTime time;
  PipelineTiming timing;        // begin and end of actions
  std::vector<double> updates;  // by device
  std::vector<double> copying;  // by device, before its first action
  double message_s = 0;         // between devices, at most
  double late_s = 0;      // extra time of the first micro-batch that no wait hides
  double exchange_s = 0;  // exchange of parameters shared by both ends, after the updates
  int32_t critical = 0;   // the device that ends last; ties: the lowest
};

// `schedule`: of the stages' shape; without a pipeline, 1f1b's of one device.
Result<ComposedRun> composed_run(std::span<const StepProfile> variants, const ComposedStages& stages,
                                 const PipelineSchedule& schedule, const Cluster& cluster);

// Shares of the critical device's step, which add up to it. Profiles have a breakdown.
std::vector<TimeShare> composed_time_shares(std::span<const StepProfile> variants,
                                            const ComposedStages& stages, const PipelineSchedule& schedule,
                                            const ComposedRun& run);

}  // namespace tessera
