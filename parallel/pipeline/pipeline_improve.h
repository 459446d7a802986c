// Local search on a zero-bubble schedule: actions move by a few places on their device as long as that
// shortens the longest device or, at equal length, all devices together.
#pragma once

#include "parallel/pipeline/pipeline_schedule.h"

namespace tessera {

// At most `evaluations` schedules are looked at. What a device holds stays within its bound. Deterministic.
void improve(PipelineSchedule& schedule, const PipelineCosts& costs, int32_t evaluations);

}  // namespace tessera
