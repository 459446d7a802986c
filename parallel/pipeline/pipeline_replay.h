// Replay of a pipeline schedule: every device carries out its list in order, an action starts when its device
// is free and what it reads has arrived. Discrete events, no randomness.
#pragma once

#include <span>
#include <vector>

#include "parallel/pipeline/pipeline_schedule.h"

namespace tessera {

struct PipelineTiming {
  // By device and action.
  std::vector<std::vector<double>> begin, end;
  // The longest time between a device's own first and last action. Devices need not start or end together
  // where an optimizer step follows at once, so this is what one step costs when steps follow each other
  // (the zero-bubble papers' measure).
  double longest_device = 0;
  double bubble = 0;               // idle share of `longest_device` on the device with the most work
  std::vector<int32_t> peak_live;  // by device: see live_bound
};

// Stage costs by stage where stages differ; `comm` is from the stage to the next, and back. Fails, naming devices and actions, when devices wait for each
// other in a circle, and when an action is missing, repeated or on another device than its stage.
Result<PipelineTiming> replay(const PipelineSchedule& schedule, std::span<const PipelineCosts> stage_costs);
Result<PipelineTiming> replay(const PipelineSchedule& schedule, const PipelineCosts& costs);

}  // namespace tessera
