// The total order of all actions of a pipeline's devices. Lowering emits every device's tasks in
// it, with messages between devices just before their readers; memory and time are composed in it.
#pragma once

#include <vector>

#include "graph/base/result.h"
#include "parallel/pipeline/pipeline_schedule.h"

namespace tessera {

// By begin at equal costs; ties: the lowest device.
Result<std::vector<PipelineAction>> pipeline_line(const PipelineSchedule& schedule);

}  // namespace tessera
