// Replay of a pipeline schedule: devices run their lists in order; an action starts
// when its device is free and its inputs have arrived. Discrete events, deterministic.
#pragma once

#include <span>
#include <vector>

#include "parallel/pipeline/pipeline_schedule.h"

namespace tessera {

struct PipelineTiming {
  // By device and action.
  std::vector<std::vector<double>> begin, end;
  // The longest span of a device from its first to its last
  // action. Devices need not start or end together, so consecutive
  // steps cost this much each (the zero-bubble papers' measure).
  double longest_device = 0;
  double bubble = 0;               // idle share of `longest_device` on the busiest device
  std::vector<int32_t> peak_live;  // by device: see live_bound
};

// Stage costs by stage; `comm`: to the next stage, and back. Fails, naming devices and actions,
// for a deadlock, and for an action that is missing, repeated or on another device than its stage.
Result<PipelineTiming> replay(const PipelineSchedule& schedule, std::span<const PipelineCosts> stage_costs);
Result<PipelineTiming> replay(const PipelineSchedule& schedule, const PipelineCosts& costs);

}  // namespace tessera
