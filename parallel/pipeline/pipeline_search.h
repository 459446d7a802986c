// Pipeline schedules by list scheduling: devices take the most urgent action that is ready, within a bound on
// what they hold; weight gradients, where they are apart, wait until nothing else can run.
#pragma once

#include "parallel/pipeline/pipeline_schedule.h"

namespace tessera {

// The best over a fixed list of rules, by the replay at equal costs; the first of equals. For the zero-bubble
// kinds, and for interleaved rounds that do not come out even.
Result<PipelineSchedule> search_pipeline_schedule(const PipelineShape& shape);

}  // namespace tessera
