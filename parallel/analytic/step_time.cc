#include "parallel/analytic/step_time.h"

#include <algorithm>
#include <vector>

#include "graph/base/text.h"
#include "parallel/analytic/fp8_linears.h"
#include "parallel/analytic/known_replays.h"
#include "parallel/analytic/offload_time.h"
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
// Bytes that a weight's codes take to make, once a step: read for its scale, again for them, and written.
constexpr double kCodeBytes = 4 + 4 + 1;
constexpr double kScaleBytes = 4;

// Communication beside computation is not free: its kernels hold about a fifth of the multiprocessors
// meanwhile.
constexpr double kInterference = 0.2;
constexpr double kHidden = 0.9;  // of a backward pass, that communication may hide beside

}  // namespace

std::vector<StageBlocks> even_stages(const TransformerShape& model, const ForeignPlan& plan) {
  const int64_t count = int64_t{plan.pp} * plan.virtual_stages;
  std::vector<StageBlocks> stages;
  for (int64_t stage = 0; stage < count; ++stage) {
    const int64_t blocks = model.L / count + (stage < model.L % count ? 1 : 0);
    stages.push_back({blocks, plan.recompute == Recompute::kFull ? blocks : 0,
                      plan.recompute == Recompute::kSelective ? blocks : 0});
    if (plan.offload_activations > 0 && plan.recompute == Recompute::kNone)
      stages.back().offloaded[static_cast<size_t>(plan.offload_activations - 1)] = blocks;
  }
  return stages;
}

StageParameters& StageParameters::operator+=(const StageParameters& other) {
  dense += other.dense, experts += other.experts;
  trained += other.trained, trained_experts += other.trained_experts;
  sharded += other.sharded, trained_sharded += other.trained_sharded;
  return *this;
}

AfterParts::AfterParts(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster,
                       int64_t micro_batches, const StageParameters& own)
    : overlaps_(plan.dp_overlap), buckets_(static_cast<double>(std::max<int64_t>(1, model.L / plan.pp))) {
  const DeviceKind& kind = cluster.kinds[0];
  RankGroup all = group_of(cluster, plan.replicas(), plan.tp);
  all.one_ring = plan.one_ring;
  const double m = static_cast<double>(micro_batches);
  const double gradient = bytes_of(plan.grad_dtype), weight = bytes_of(plan.compute_dtype);
  // Parameters of one kind, spread as stage `zero` says. From stage 2 on gradients are scattered every
  // micro-batch; in stage 3 weights are gathered for each forward and each backward pass, before that once,
  // after the update.
  const auto reduce = [&](const RankGroup& group, double count, double trained, int32_t zero) {
    if (group.members < 2 || count == 0) return;
    Part part;
    if (zero == 0) {
      part.seconds = all_reduce_seconds(cluster, group, trained * gradient);
      if (!plan.dp_overlap) part.copied_s = streaming_seconds(kind, 4 * trained * gradient);
    } else {
      part.seconds =
          gather_seconds(cluster, group, trained * gradient) * (zero >= 2 ? m : 1) +
          gather_seconds(cluster, group, (zero == 3 ? count : trained) * weight) * (zero == 3 ? 2 * m : 1);
      if (zero == 3) part.seconds += 2 * m * (plan.chunks - 1) * gather_seconds(cluster, group, 0);
    }
    part.passes = zero == 3 ? 1.5 * m : zero == 2 ? m : 1;
    parts_.push_back(part);
    if (overlaps_) all_hidden_s_.push_back(part.seconds * (1 - 1 / buckets_) / (kHidden * part.passes));
  };
  reduce(all, own.dense - own.sharded, own.trained - own.trained_sharded, plan.zero);
  if (own.sharded > 0) reduce(all, own.sharded, own.trained_sharded, 3);
  if (own.experts > 0)
    reduce(group_of(cluster, plan.dp * plan.cp, plan.tp * plan.ep), own.experts, own.trained_experts,
           plan.zero);
  if (model.tied && plan.pp > 1 && plan.lora == 0 &&
      device_of(plan, plan.pp * plan.virtual_stages - 1) != 0) {
    const double shared = static_cast<double>(model.V * model.C) / plan.tp * gradient;
    tied_s_ =
        all_reduce_seconds(cluster, group_of(cluster, 2, plan.tp * plan.replicas() * (plan.pp - 1)), shared);
  }
  const double sharded = plan.zero > 0 ? own.trained : own.trained_sharded;
  const double updated = sharded / plan.replicas() + (own.trained - sharded) +
                         own.trained_experts / (plan.zero > 0 ? plan.dp * plan.cp : 1);
  const double update =
      std::max(streaming_seconds(kind, updated * kUpdateBytes), kUpdateKernels * kind.issue_s);
  update_s_ = update + offloaded_update_seconds(plan, cluster, updated, update);
  if (const Fp8Linears fp8 = fp8_linears(model, plan); fp8.any()) {
    // From what a rank holds: parts of a weight agree on one scale.
    const int32_t parts = plan.zero == 3 ? plan.replicas() : 1;
    const double weights = static_cast<double>(model.L) / plan.pp * (fp8.columns() + fp8.rows());
    update_s_ += streaming_seconds(kind, own.dense / parts * kCodeBytes) +
                 weights * (2 * kind.launch_s +
                            all_reduce_seconds(cluster, group_of(cluster, parts * plan.tp, 1), kScaleBytes));
  }
}

AfterPipeline AfterParts::beside(double backward_s) const {
  double seconds = 0;
  for (const Part& part : parts_) {
    double exposed = part.seconds;
    if (overlaps_) {
      const double left =
          std::max(part.seconds - kHidden * backward_s * part.passes, part.seconds / buckets_);
      exposed = left + kInterference * (part.seconds - left);
    }
    seconds += exposed + part.copied_s;
  }
  return {seconds + tied_s_, update_s_};
}

AfterPipeline after_pipeline(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster,
                             int64_t micro_batches, const StageParameters& own, double backward_s) {
  return AfterParts(model, plan, cluster, micro_batches, own).beside(backward_s);
}

Result<StepTime> step_time(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster,
                           int64_t global_batch, std::span<const StageBlocks> given,
                           std::vector<ReplayedPass>* replayed, double most_s, KnownReplays* known) {
  TSR_RETURN_IF_ERROR(check_one_kind(cluster));
  TSR_RETURN_IF_ERROR(
      check_foreign_plan(plan, model, global_batch, static_cast<int32_t>(cluster.devices.size())));
  TSR_RETURN_IF_ERROR(check_fp8_linears(model, plan, {&cluster, 1}));
  const StageTimes stage_times(model, plan, cluster);
  const int64_t m = global_batch / (plan.micro_batch * plan.data());
  const std::vector<StageBlocks> even = given.empty() ? even_stages(model, plan) : std::vector<StageBlocks>();
  const std::span<const StageBlocks> stages = given.empty() ? std::span<const StageBlocks>(even) : given;
  const int32_t count = plan.pp * plan.virtual_stages;
  if (static_cast<int64_t>(stages.size()) != count)
    return Status(StatusCode::kInvalidArgument,
                  format("step_time: {} stages are described, the plan has {}", stages.size(), count));

  std::vector<StageTime> times;
  std::vector<double> recompute(static_cast<size_t>(plan.pp), 0), collective(recompute), sends(recompute),
      backward(recompute), offload(recompute), busy(recompute);
  std::vector<StageParameters> parameters(static_cast<size_t>(plan.pp));
  for (int32_t stage = 0; stage < count; ++stage) {
    const auto device = static_cast<size_t>(device_of(plan, stage));
    const StagePasses passes =
        stage_times.of(stages[static_cast<size_t>(stage)], stage == 0, stage + 1 == count);
    times.push_back({passes.forward_s, passes.backward_s, passes.weight_s});
    backward[device] += passes.backward_s;
    busy[device] += static_cast<double>(m) * (passes.forward_s + passes.backward_s);
    recompute[device] += static_cast<double>(m) * passes.recompute_s;
    collective[device] += static_cast<double>(m) * passes.collective_s;
    sends[device] += static_cast<double>(m) * passes.send_s;
    offload[device] += static_cast<double>(m) * passes.offload_s;
    parameters[device] +=
        stage_times.counts(stages[static_cast<size_t>(stage)].blocks, stage == 0, stage + 1 == count);
  }
  // Gradient sync and update: of the stage that takes longest, each beside its own backward passes.
  const auto slowest = static_cast<size_t>(std::ranges::max_element(busy) - busy.begin());
  AfterPipeline after;
  for (size_t device = 0; device < parameters.size(); ++device) {
    const AfterPipeline own = after_pipeline(model, plan, cluster, m, parameters[device], backward[device]);
    if (own.gradients_s + own.update_s > after.gradients_s + after.update_s) after = own;
  }
  const double pipeline_most_s = most_s - (1 - 1e-12) * (after.gradients_s + after.update_s);
  const ReplayedPipeline replay = known != nullptr && replayed == nullptr && plan.splits_backward()
                                      ? known->replay(plan.schedule, plan.pp, m, times, 0, pipeline_most_s)
                                      : replay_pipeline(plan.schedule, plan.pp, plan.virtual_stages, m, times,
                                                        0, replayed, pipeline_most_s);

  StepTime result;
  result.step_s = replay.makespan_s + after.gradients_s + after.update_s;
  if (std::isinf(result.step_s)) return result;
  result.communication_s = collective[slowest];
  result.sends_s = sends[slowest];
  result.slowest = static_cast<int32_t>(slowest);
  result.recompute_s = recompute[slowest];
  result.offload_s = offload[slowest];
  result.compute_s = replay.busy_s[slowest] - collective[slowest] - offload[slowest];
  result.bubble_s = replay.makespan_s - replay.busy_s[slowest];
  result.gradients_s = after.gradients_s;
  result.update_s = after.update_s;
  return result;
}

}  // namespace tessera
