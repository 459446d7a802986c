// ScheduleCache: pipeline schedules, computed once for many plans.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "graph/base/result.h"
#include "parallel/pipeline/pipeline_schedule.h"

namespace tessera {

class ScheduleCache {
 public:
  // Pointers live as long as the cache.
  Result<const PipelineSchedule*> schedule(const PipelineShape& shape);
  Result<const std::vector<PipelineAction>*> line(const PipelineShape& shape);  // pipeline_line.h

 private:
  struct Known {
    Status status;
    PipelineSchedule schedule;
    std::vector<PipelineAction> line;
  };
  Known& known(const PipelineShape& shape);

  std::map<std::array<int32_t, 4>, Known> known_;
};

}  // namespace tessera
