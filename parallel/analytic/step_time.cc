#include "parallel/analytic/step_time.h"

#include <algorithm>
#include <vector>

#include "graph/base/text.h"
#include "parallel/analytic/pipeline_replay.h"
#include "parallel/analytic/stage_time.h"

namespace tessera {

namespace {

double bytes_of(DType dtype) {
  return static_cast<double>(info(dtype).block_bytes) / info(dtype).block_elements;
}

// Bytes that a fused mixed-precision Adam step moves per parameter: gradient (2, and 2 for its norm), master
// weight and two moments read and written (24), weight (2).
constexpr double kUpdateBytes = 30;
constexpr double kUpdateKernels = 60;  // issued in any case

// Communication beside computation is not free: its kernels hold about a fifth of the multiprocessors
// meanwhile.
constexpr double kInterference = 0.2;

}  // namespace

std::vector<StageBlocks> even_stages(const TransformerShape& model, const ForeignPlan& plan) {
  const int64_t count = int64_t{plan.pp} * plan.virtual_stages;
  std::vector<StageBlocks> stages;
  for (int64_t stage = 0; stage < count; ++stage) {
    const int64_t blocks = model.L / count + (stage < model.L % count ? 1 : 0);
    stages.push_back({blocks, plan.recompute == Recompute::kFull ? blocks : 0,
                      plan.recompute == Recompute::kSelective ? blocks : 0});
  }
  return stages;
}

AfterPipeline after_pipeline(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster,
                             int64_t micro_batches, double parameters, double backward_s) {
  const DeviceKind& kind = cluster.kinds[0];
  const Group data = group_of(cluster, plan.dp, plan.tp);
  const double m = static_cast<double>(micro_batches);
  const double gradient_bytes = parameters * bytes_of(plan.grad_dtype);
  const double weight_bytes = parameters * bytes_of(plan.compute_dtype);
  double reduction = all_reduce_seconds(cluster, data, gradient_bytes);
  if (plan.zero > 0) {
    // From stage 2 on gradients are scattered every micro-batch; in stage 3 weights are gathered for each
    // forward and each backward pass, before that once, after the update.
    reduction = gather_seconds(cluster, data, gradient_bytes) * (plan.zero >= 2 ? m : 1) +
                gather_seconds(cluster, data, weight_bytes) * (plan.zero == 3 ? 2 * m : 1);
  }
  if (plan.dp_overlap) {
    // Hidden beside the last backward pass (beside all passes where every micro-batch communicates), but for
    // one bucket.
    const double beside = 0.9 * backward_s * (plan.zero == 3 ? 1.5 * m : plan.zero == 2 ? m : 1);
    const double buckets = static_cast<double>(std::max<int64_t>(1, model.L / plan.pp));
    const double exposed = std::max(reduction - beside, reduction / buckets);
    reduction = exposed + kInterference * (reduction - exposed);
  } else if (plan.dp > 1 && plan.zero == 0) {
    reduction += streaming_seconds(kind, 4 * gradient_bytes);  // copied into one buffer and back
  }
  if (model.tied && plan.pp > 1) {
    const double shared = static_cast<double>(model.V * model.C) / plan.tp * bytes_of(plan.grad_dtype);
    reduction += all_reduce_seconds(cluster, group_of(cluster, 2, plan.tp * plan.dp * (plan.pp - 1)), shared);
  }
  const double updated = plan.zero > 0 ? parameters / plan.dp : parameters;
  return {reduction,
          std::max(streaming_seconds(kind, updated * kUpdateBytes), kUpdateKernels * kind.issue_s)};
}

Result<StepTime> step_time(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster,
                           int64_t global_batch, std::span<const StageBlocks> given,
                           std::vector<ReplayedPass>* replayed) {
  TSR_RETURN_IF_ERROR(
      check_foreign_plan(plan, model, global_batch, static_cast<int32_t>(cluster.devices.size())));
  const StageTimes stage_times(model, plan, cluster);
  const int64_t m = global_batch / (plan.micro_batch * plan.dp);
  const std::vector<StageBlocks> even = given.empty() ? even_stages(model, plan) : std::vector<StageBlocks>();
  const std::span<const StageBlocks> stages = given.empty() ? std::span<const StageBlocks>(even) : given;
  const int32_t count = plan.pp * plan.virtual_stages;
  if (static_cast<int64_t>(stages.size()) != count)
    return Status(StatusCode::kInvalidArgument,
                  format("step_time: {} stages are described, the plan has {}", stages.size(), count));

  std::vector<StageTime> times;
  std::vector<double> recompute(static_cast<size_t>(plan.pp), 0), collective(recompute), sends(recompute),
      parameters(recompute), backward(recompute);
  for (int32_t stage = 0; stage < count; ++stage) {
    const auto device = static_cast<size_t>(stage % plan.pp);
    const StagePasses passes =
        stage_times.of(stages[static_cast<size_t>(stage)], stage == 0, stage + 1 == count);
    times.push_back({passes.forward_s, passes.backward_s});
    backward[device] += passes.backward_s;
    recompute[device] += static_cast<double>(m) * passes.recompute_s;
    collective[device] += static_cast<double>(m) * passes.collective_s;
    sends[device] += static_cast<double>(m) * passes.send_s;
    parameters[device] +=
        stage_times.parameters(stages[static_cast<size_t>(stage)].blocks, stage == 0, stage + 1 == count);
  }
  const ReplayedPipeline replay =
      replay_pipeline(plan.schedule, plan.pp, plan.virtual_stages, m, times, 0, replayed);

  StepTime result;
  const auto slowest = static_cast<size_t>(std::ranges::max_element(replay.busy_s) - replay.busy_s.begin());
  result.communication_s = collective[slowest];
  result.sends_s = sends[slowest];
  result.slowest = static_cast<int32_t>(slowest);
  result.recompute_s = recompute[slowest];
  result.compute_s = replay.busy_s[slowest] - collective[slowest];
  result.bubble_s = replay.makespan_s - replay.busy_s[slowest];
  // The stage with most parameters decides what comes after.
  const AfterPipeline after =
      after_pipeline(model, plan, cluster, m, std::ranges::max(parameters), backward[slowest]);
  result.gradients_s = after.gradients_s;
  result.update_s = after.update_s;
  result.step_s = replay.makespan_s + after.gradients_s + after.update_s;
  return result;
}

}  // namespace tessera
