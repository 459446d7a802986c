// Time of a step, composed of the profile of a model with few blocks: the schedule replayed with what every stage's blocks take.
#pragma once

#include <span>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "parallel/composition/composed_memory.h"
#include "parallel/composition/step_profile.h"

namespace tessera {

struct ComposedTime {
  double step_s = 0;
  double passes_s = 0;  // until the last device has carried out its actions
  double update_s = 0;  // of the device that takes longest, after that
};

// As composed_memory.
Result<ComposedTime> composed_time(std::span<const StepProfile> variants, const ComposedStages& stages,
                                   const Cluster& cluster);

}  // namespace tessera
