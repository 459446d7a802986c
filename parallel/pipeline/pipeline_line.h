// The line of a pipeline: all actions of all devices in one order. Lowering emits every device's tasks in it, with what an action reads
// from another device sent and received just before it; memory and time are composed in it.
#pragma once

#include <vector>

#include "graph/base/result.h"
#include "parallel/pipeline/pipeline_schedule.h"

namespace tessera {

// By when actions begin where all cost the same; of those that begin together the lowest device's first.
Result<std::vector<PipelineAction>> pipeline_line(const PipelineSchedule& schedule);

}  // namespace tessera
