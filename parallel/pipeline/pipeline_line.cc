#include "parallel/pipeline/pipeline_line.h"

#include <algorithm>

#include "parallel/pipeline/pipeline_replay.h"

namespace tessera {

Result<std::vector<PipelineAction>> pipeline_line(const PipelineSchedule& schedule) {
  TSR_ASSIGN_OR_RETURN(const PipelineTiming timing, replay(schedule, PipelineCosts{}));
  struct Begin {
    double at;
    PipelineAction action;
  };
  std::vector<Begin> begins;
  for (size_t d = 0; d < schedule.devices.size(); ++d)
    for (size_t a = 0; a < schedule.devices[d].size(); ++a)
      begins.push_back({timing.begin[d][a], schedule.devices[d][a]});
  std::ranges::stable_sort(begins, {}, &Begin::at);
  std::vector<PipelineAction> line;
  line.reserve(begins.size());
  for (const Begin& it : begins) line.push_back(it.action);
  return line;
}

}  // namespace tessera
