#include "parallel/analytic/mixed_time.h"

#include <algorithm>
#include <numeric>

#include "graph/base/text.h"
#include "parallel/analytic/pipeline_replay.h"

namespace tessera {

MixedStages::MixedStages(const TransformerShape& model, const ForeignPlan& plan, const StageKinds& kinds)
    : plan_(plan), kinds_(kinds), between_(model, plan, kinds.between) {
  times_.reserve(kinds.kinds.size());
  for (const Cluster& cluster : kinds.kinds) times_.emplace_back(model, plan, cluster);
}

bool MixedStages::meets(int32_t a, int32_t b) const {
  return b < plan_.pp && a >= 0 &&
         kinds_.of_stage[static_cast<size_t>(a)] != kinds_.of_stage[static_cast<size_t>(b)];
}

StagePasses MixedStages::passes(int32_t stage, const StageBlocks& blocks) const {
  const StageTimes& own = times(stage);
  StagePasses passes = own.of(blocks, stage == 0, stage + 1 == plan_.pp);
  const double more = between_.transfer_s() - own.transfer_s();
  const auto add = [&](double& pass) { pass += more, passes.send_s += more, passes.collective_s += more; };
  if (meets(stage, stage + 1)) add(passes.forward_s);
  if (meets(stage - 1, stage)) add(passes.backward_s);
  return passes;
}

double shared_embedding_seconds(const TransformerShape& model, const ForeignPlan& plan,
                                const StageKinds& kinds) {
  if (!model.tied || plan.lora > 0) return 0;
  const DTypeInfo& type = info(plan.grad_dtype);
  const double bytes = static_cast<double>(type.block_bytes) / type.block_elements;
  return all_reduce_seconds(kinds.between, {2, 1, false},
                            static_cast<double>(model.V * model.C) / plan.tp * bytes);
}

Result<StepTime> mixed_step_time(const TransformerShape& model, const ForeignPlan& plan,
                                 const StageKinds& kinds, int64_t global_batch,
                                 std::span<const StageBlocks> stages, std::vector<ReplayedPass>* replayed) {
  TSR_RETURN_IF_ERROR(check_foreign_plan(plan, model, global_batch, plan.devices()));
  const auto count = static_cast<size_t>(plan.pp);
  if (stages.size() != count || kinds.of_stage.size() != count || plan.virtual_stages != 1)
    return Status(
        StatusCode::kInvalidArgument,
        format("mixed_step_time: {} stages are described on {} places, the plan has {} of {} chunks",
               stages.size(), kinds.of_stage.size(), plan.pp, plan.virtual_stages));
  const MixedStages mixed(model, plan, kinds);
  const int64_t m = global_batch / (plan.micro_batch * plan.data());
  std::vector<StagePasses> passes;
  std::vector<StageTime> times;
  // The embedding's gradient meets the head's across kinds.
  TransformerShape apart = model;
  apart.tied = false;
  AfterPipeline after;
  size_t slowest = 0;
  for (size_t s = 0; s < count; ++s) {
    const auto stage = static_cast<int32_t>(s);
    passes.push_back(mixed.passes(stage, stages[s]));
    const StagePasses &now = passes.back(), &most = passes[slowest];
    times.push_back({now.forward_s, now.backward_s, now.weight_s});
    if (now.forward_s + now.backward_s > most.forward_s + most.backward_s) slowest = s;
    const AfterPipeline own = after_pipeline(
        apart, plan, kinds.kinds[kinds.of_stage[s]], m,
        mixed.times(stage).counts(stages[s].blocks, stage == 0, stage + 1 == plan.pp), now.backward_s);
    if (own.gradients_s + own.update_s > after.gradients_s + after.update_s) after = own;
  }
  after.gradients_s += shared_embedding_seconds(model, plan, kinds);
  const ReplayedPipeline replay = replay_pipeline(plan.schedule, plan.pp, 1, m, times, 0, replayed);
  const double all = static_cast<double>(m);
  const StagePasses& of = passes[slowest];
  StepTime result;
  result.slowest = static_cast<int32_t>(slowest);
  result.step_s = replay.makespan_s + after.gradients_s + after.update_s;
  result.communication_s = all * of.collective_s;
  result.sends_s = all * of.send_s;
  result.recompute_s = all * of.recompute_s;
  result.offload_s = all * of.offload_s;
  result.compute_s = replay.busy_s[slowest] - result.communication_s - result.offload_s;
  result.bubble_s = replay.makespan_s - replay.busy_s[slowest];
  result.gradients_s = after.gradients_s;
  result.update_s = after.update_s;
  return result;
}

}  // namespace tessera
