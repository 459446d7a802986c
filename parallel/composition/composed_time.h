// Time of a step, composed of the profile of a model with few blocks: the schedule replayed with what every stage's blocks take.
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
  double passes_s = 0;  // until the last device has carried out its actions
  double update_s = 0;  // of the device that takes longest, after that
  int32_t slowest = 0;  // device of the pipeline whose passes of one micro-batch take longest
};

// As composed_memory.
Result<ComposedTime> composed_time(std::span<const StepProfile> variants, const ComposedStages& stages,
                                   const Cluster& cluster, ScheduleCache* schedules = nullptr);

// ComposedRun: when a step's actions run.
struct ComposedRun {
  ComposedTime time;
  PipelineTiming timing;        // when actions begin and end
  std::vector<double> updates;  // by device
  std::vector<double> copying;  // by device, before its first action
  double message_s = 0;         // from one device to another, at most
  double late_s = 0;      // that the first micro-batch takes beyond others, where no device waits meanwhile
  double exchange_s = 0;  // of parameters that both ends of the model have, after the updates
  int32_t critical = 0;   // device that ends last, the lowest of those
};

// `schedule`: of the stages' shape; without a pipeline 1f1b's of one device.
Result<ComposedRun> composed_run(std::span<const StepProfile> variants, const ComposedStages& stages,
                                 const PipelineSchedule& schedule, const Cluster& cluster);

// Shares of the critical device's step, which they add up to. Profiles have a breakdown.
std::vector<TimeShare> composed_time_shares(std::span<const StepProfile> variants,
                                            const ComposedStages& stages, const PipelineSchedule& schedule,
                                            const ComposedRun& run);

}  // namespace tessera
