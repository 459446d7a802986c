// Pipeline schedules by list scheduling: devices take the most urgent ready action
// within their memory bound; separate weight gradients wait until nothing else can run.
#pragma once

#include "parallel/pipeline/pipeline_schedule.h"

namespace tessera {

// The best over a fixed list of rules, by the replay at equal costs; ties: the first.
// For the zero-bubble kinds, and for interleaved schedules with an incomplete round.
Result<PipelineSchedule> search_pipeline_schedule(const PipelineShape& shape);

}  // namespace tessera
