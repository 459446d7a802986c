#include "parallel/pipeline/pipeline_schedule.h"

#include <algorithm>

#include "graph/base/text.h"
#include "parallel/pipeline/pipeline_replay.h"
#include "parallel/pipeline/pipeline_search.h"

namespace tessera {

int32_t PipelineShape::device_of(int32_t stage) const {
  if (kind == ScheduleKind::kZbV && stage >= devices) return 2 * devices - 1 - stage;
  return stage % devices;
}

int32_t live_bound(const PipelineShape& shape, int32_t device) {
  const int32_t p = shape.devices, v = shape.virtual_stages, m = shape.micro_batches;
  switch (shape.kind) {
    case ScheduleKind::k1F1B: return std::min(m, p - device);
    case ScheduleKind::kInterleaved: return std::min(m * v, (p - device - 1) * 2 + (v - 1) * p + 1);
    case ScheduleKind::kZbH1: return std::min(m, p);
    case ScheduleKind::kZbH2: return std::min(m, 2 * p - 1);
    case ScheduleKind::kZbV:
      // As many bytes as p whole stages, 1F1B's bound. From p = 5 one half
      // stage more: without it every schedule found idles for one action.
      return std::min(m * v, v * p + (p > 4 ? 1 : 0));
    case ScheduleKind::kNone:
    case ScheduleKind::kGpipe: return m * v;
  }
  return m * v;
}

namespace {

Status check(const PipelineShape& shape) {
  const auto refuse = [](std::string what) { return Status(StatusCode::kInvalidArgument, std::move(what)); };
  if (shape.devices < 1 || shape.virtual_stages < 1 || shape.micro_batches < 1 ||
      shape.devices > kMostMicroBatches || shape.virtual_stages > kMostMicroBatches ||
      shape.micro_batches > kMostMicroBatches)
    return refuse(format("a pipeline of {} devices, {} stages each and {} micro-batches", shape.devices,
                         shape.virtual_stages, shape.micro_batches));
  constexpr int64_t kMostActions = int64_t{1} << 24;
  if (int64_t{shape.devices} * shape.virtual_stages * shape.micro_batches > kMostActions)
    return refuse(
        format("{} stages and {} micro-batches are more than {} actions; use a larger mb or fewer stages",
               int64_t{shape.devices} * shape.virtual_stages, shape.micro_batches, kMostActions));
  if (shape.kind == ScheduleKind::kZbV && shape.virtual_stages != 2)
    return refuse(format("zb-v has 2 stages a device, {} are given", shape.virtual_stages));
  const bool several = shape.kind == ScheduleKind::kZbV || shape.kind == ScheduleKind::kInterleaved;
  if (!several && shape.virtual_stages != 1)
    return refuse(
        format("{} stages a device; only interleaved and zb-v have more than 1", shape.virtual_stages));
  return {};
}

void gpipe(PipelineSchedule& out) {
  const PipelineShape& shape = out.shape;
  for (int32_t d = 0; d < shape.devices; ++d)
    for (const PipelineWork work : {PipelineWork::kForward, PipelineWork::kBackward})
      for (int32_t j = 0; j < shape.micro_batches; ++j)
        out.devices[static_cast<size_t>(d)].push_back({work, d, j});
}

// Micro-batches pass in rounds of p through the device's stages in turn; the last round
// may be shorter. Forwards run ahead far enough to keep later devices busy; v = 1 is 1F1B.
void one_forward_one_backward(PipelineSchedule& out) {
  const PipelineShape& shape = out.shape;
  const int32_t p = shape.devices, v = shape.virtual_stages, m = shape.micro_batches;
  for (int32_t d = 0; d < p; ++d) {
    std::vector<PipelineAction> forwards, backwards;
    for (int32_t round = 0; round < m; round += p)
      for (int32_t c = 0; c < v; ++c)
        for (int32_t j = round; j < std::min(m, round + p); ++j) {
          forwards.push_back({PipelineWork::kForward, c * p + d, j});
          backwards.push_back({PipelineWork::kBackward, (v - 1 - c) * p + d, j});
        }
    const auto ahead = static_cast<size_t>(live_bound(shape, d));
    std::vector<PipelineAction>& actions = out.devices[static_cast<size_t>(d)];
    for (size_t i = 0; i < forwards.size() + ahead; ++i) {
      if (i < forwards.size()) actions.push_back(forwards[i]);
      if (i + 1 >= ahead && i + 1 - ahead < backwards.size()) actions.push_back(backwards[i + 1 - ahead]);
    }
  }
}

}  // namespace

Result<PipelineSchedule> make_pipeline_schedule(const PipelineShape& shape) {
  TSR_RETURN_IF_ERROR(check(shape));
  if (shape.splits_backward()) return search_pipeline_schedule(shape);
  PipelineSchedule out;
  out.shape = shape;
  out.devices.resize(static_cast<size_t>(shape.devices));
  if (shape.kind == ScheduleKind::kGpipe || shape.kind == ScheduleKind::kNone) {
    gpipe(out);
  } else {
    one_forward_one_backward(out);
  }
  if (shape.virtual_stages == 1 || shape.micro_batches % shape.devices == 0) return out;
  // With incomplete rounds devices may wait unnecessarily, or deadlock.
  TSR_ASSIGN_OR_RETURN(PipelineSchedule found, search_pipeline_schedule(shape));
  TSR_ASSIGN_OR_RETURN(const PipelineTiming timing, replay(found, PipelineCosts{}));
  const Result<PipelineTiming> in_rounds = replay(out, PipelineCosts{});
  if (in_rounds.ok() && in_rounds->longest_device <= timing.longest_device) return out;
  return found;
}

std::string to_text(const PipelineAction& action) {
  constexpr std::string_view kLetters = "FBWD";
  return format("{}{}.{}", kLetters[static_cast<size_t>(action.work)], action.stage, action.micro_batch);
}

std::string to_text(const PipelineSchedule& schedule) {
  std::string text;
  for (const std::vector<PipelineAction>& actions : schedule.devices) {
    std::vector<std::string> words;
    for (const PipelineAction& action : actions) words.push_back(to_text(action));
    text += join(words, " ") + "\n";
  }
  return text;
}

}  // namespace tessera
