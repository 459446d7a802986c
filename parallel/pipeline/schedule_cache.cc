#include "parallel/pipeline/schedule_cache.h"

#include <utility>

#include "parallel/pipeline/pipeline_line.h"

namespace tessera {

ScheduleCache::Known& ScheduleCache::known(const PipelineShape& shape) {
  const auto [at, is_new] = known_.try_emplace(
      {static_cast<int32_t>(shape.kind), shape.devices, shape.virtual_stages, shape.micro_batches});
  if (!is_new) return at->second;
  if (auto made = make_pipeline_schedule(shape); made.ok())
    at->second.schedule = *std::move(made);
  else
    at->second.status = made.status();
  return at->second;
}

Result<const PipelineSchedule*> ScheduleCache::schedule(const PipelineShape& shape) {
  const Known& it = known(shape);
  TSR_RETURN_IF_ERROR(it.status);
  return &it.schedule;
}

Result<const std::vector<PipelineAction>*> ScheduleCache::line(const PipelineShape& shape) {
  Known& it = known(shape);
  TSR_RETURN_IF_ERROR(it.status);
  if (it.line.empty()) {
    TSR_ASSIGN_OR_RETURN(it.line, pipeline_line(it.schedule));
  }
  return &std::as_const(it.line);
}

}  // namespace tessera
