#include "parallel/composition/composed_time.h"

#include <algorithm>

#include "parallel/pipeline/pipeline_replay.h"
#include "parallel/pricing/cost_model.h"

namespace tessera {

namespace {

double seconds(std::span<const StepProfile> variants, const std::vector<StageBlock>& blocks, Turn turn,
               BlockPass pass) {
  double sum = 0;
  for (const StageBlock block : blocks)
    sum += variants[static_cast<size_t>(block.variant)].cost(block.block, turn, pass).seconds;
  return sum;
}

double message_seconds(int64_t bytes, const Cluster& cluster) {
  if (bytes == 0) return 0;
  SendInst send;
  send.bytes = bytes;
  return seconds_at(price_of(RankProgram(), send, cluster), cluster, 1);
}

double without_pipeline(std::span<const StepProfile> variants, const ComposedStages& stages) {
  double sum = variants[0].once_s;
  const int32_t count = stages.shape.micro_batches;
  for (const auto& [turn, times] :
       {std::pair(Turn::kFirst, count > 1 ? 1 : 0), std::pair(Turn::kSteady, std::max(0, count - 2)),
        std::pair(Turn::kLast, 1)})
    for (const BlockPass pass : {BlockPass::kForward, BlockPass::kBackward})
      sum += times * seconds(variants, stages.blocks[0], turn, pass);
  return sum;
}

}  // namespace

Result<ComposedTime> composed_time(std::span<const StepProfile> variants, const ComposedStages& stages,
                                   const Cluster& cluster) {
  ComposedTime time;
  if (stages.shape.devices == 1) {
    time.passes_s = without_pipeline(variants, stages);
    time.update_s = seconds(variants, stages.blocks[0], Turn::kLast, BlockPass::kUpdate);
    time.step_s = time.passes_s + time.update_s;
    return time;
  }
  const Turn turn = stages.shape.micro_batches > 1 ? Turn::kSteady : Turn::kFirst;
  std::vector<PipelineCosts> costs;
  for (const std::vector<StageBlock>& blocks : stages.blocks)
    costs.push_back({.forward = seconds(variants, blocks, turn, BlockPass::kForward),
                     .backward_input = seconds(variants, blocks, turn, BlockPass::kBackward),
                     .backward_weight = seconds(variants, blocks, turn, BlockPass::kWeight)});
  TSR_ASSIGN_OR_RETURN(const PipelineSchedule schedule, make_pipeline_schedule(stages.shape));
  const double comm =
      message_seconds(std::max(variants[0].forward_message, variants[0].backward_message), cluster);
  TSR_ASSIGN_OR_RETURN(const PipelineTiming timing, replay(schedule, costs, comm));
  std::vector<double> updates(static_cast<size_t>(stages.shape.devices), 0);
  for (int32_t s = 0; s < stages.shape.stages(); ++s)
    updates[static_cast<size_t>(stages.shape.device_of(s))] +=
        seconds(variants, stages.blocks[static_cast<size_t>(s)], Turn::kLast, BlockPass::kUpdate);
  for (const std::vector<double>& ends : timing.end)
    if (!ends.empty()) time.passes_s = std::max(time.passes_s, ends.back());
  time.update_s = std::ranges::max(updates);
  time.step_s = time.passes_s + time.update_s;
  return time;
}

}  // namespace tessera
