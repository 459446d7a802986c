#include "parallel/analytic/step_time.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "parallel/analytic/block_time.h"
#include "parallel/analytic/pipeline_replay.h"

namespace tessera {

namespace {

double bytes_of(DType dtype) {
  return static_cast<double>(info(dtype).block_bytes) / info(dtype).block_elements;
}

// Bytes that a fused mixed-precision Adam step moves per parameter: gradient (2, and 2 for its norm), master
// weight and two moments read and written (24), weight (2).
constexpr double kUpdateBytes = 30;
constexpr double kUpdateKernels = 60;  // issued in any case

}  // namespace

Result<StepTime> step_time(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster,
                           int64_t global_batch) {
  TSR_RETURN_IF_ERROR(
      check_foreign_plan(plan, model, global_batch, static_cast<int32_t>(cluster.devices.size())));
  const DeviceKind& kind = cluster.kinds[0];
  const int64_t m = global_batch / (plan.micro_batch * plan.dp);
  const BlockTime block = block_time(model, plan, cluster);
  const BlockTime embedding = embedding_time(model, plan, cluster), head = head_time(model, plan, cluster);

  // Between stages: tokens of one micro-batch, by every tp rank whole unless it sends its part only.
  const double boundary =
      static_cast<double>(plan.micro_batch * model.T * model.C) * bytes_of(plan.compute_dtype);
  const double part = plan.scatter_sends || plan.sequence_parallel ? boundary / plan.tp : boundary;
  double transfer = plan.pp > 1 ? send_seconds(cluster, plan.tp * plan.dp, part) : 0;
  if (plan.pp > 1 && plan.scatter_sends && !plan.sequence_parallel)
    transfer += gather_seconds(cluster, group_of(cluster, plan.tp, 1), boundary);

  const int32_t stages = plan.pp * plan.virtual_stages;
  std::vector<StageTime> times;
  std::vector<double> recompute(static_cast<size_t>(plan.pp), 0), collective(static_cast<size_t>(plan.pp), 0);
  std::vector<double> blocks_of(static_cast<size_t>(plan.pp), 0);
  for (int32_t stage = 0; stage < stages; ++stage) {
    const auto device = static_cast<size_t>(stage % plan.pp);
    const int64_t blocks = model.L / stages + (stage < model.L % stages ? 1 : 0);
    blocks_of[device] += static_cast<double>(blocks);
    Pass forward = static_cast<double>(blocks) * block.forward;
    Pass backward = static_cast<double>(blocks) * block.backward;
    const Pass again = static_cast<double>(blocks) * block.recompute;
    backward += again;
    if (stage == 0) forward += embedding.forward, backward += embedding.backward;
    if (stage == stages - 1) forward += head.forward, backward += head.backward;
    // Sends are synchronous: a stage is busy while its own goes out.
    const double out = stage + 1 < stages ? transfer : 0, in = stage > 0 ? transfer : 0;
    const double first = forward.seconds(kind);
    double second = backward.seconds(kind);
    // Without stages between, the host starts on the backward pass while the device is still in the forward
    // one.
    if (plan.pp == 1)
      second = std::max(backward.compute_s + backward.collective_s,
                        (forward.kernels + backward.kernels) * kind.issue_s - first);
    times.push_back({first + out, second + in});
    recompute[device] += static_cast<double>(m) * again.compute_s;
    collective[device] += static_cast<double>(m) * (forward.collective_s + backward.collective_s + out + in);
  }
  const Replay replay = replay_pipeline(plan.schedule, plan.pp, plan.virtual_stages, m, times, 0);

  StepTime result;
  const auto slowest = static_cast<size_t>(std::max_element(replay.busy_s.begin(), replay.busy_s.end()) -
                                           replay.busy_s.begin());
  result.communication_s = collective[slowest];
  result.recompute_s = recompute[slowest];
  result.compute_s = replay.busy_s[slowest] - collective[slowest];
  result.bubble_s = replay.makespan_s - replay.busy_s[slowest];

  // After the pipeline: the stage with most parameters decides.
  double parameters = 0;
  for (int32_t device = 0; device < plan.pp; ++device) {
    double own = blocks_of[static_cast<size_t>(device)] * static_cast<double>(model.block_parameters());
    if (device == 0) own += static_cast<double>(model.embedding_parameters());
    if (device == plan.pp - 1)
      own +=
          static_cast<double>(model.head_parameters() - (model.tied && plan.pp == 1 ? model.V * model.C : 0));
    parameters = std::max(parameters, own / plan.tp);
  }
  const Group data = group_of(cluster, plan.dp, plan.tp);
  const double gradient_bytes = parameters * bytes_of(plan.grad_dtype);
  double reduction = all_reduce_seconds(cluster, data, gradient_bytes);
  if (plan.zero > 0)
    reduction =
        gather_seconds(cluster, data, gradient_bytes) +
        (plan.zero < 3 ? gather_seconds(cluster, data, parameters * bytes_of(plan.compute_dtype)) : 0);
  if (plan.zero == 3)  // gathered for forward and for backward of every micro-batch
    reduction +=
        2 * static_cast<double>(m) * gather_seconds(cluster, data, parameters * bytes_of(plan.compute_dtype));
  if (plan.dp_overlap) {
    // Hidden beside the last micro-batch's backward pass, but for the last bucket.
    const double beside =
        times[static_cast<size_t>(slowest)].backward_s * (plan.zero == 3 ? static_cast<double>(m) * 1.5 : 1);
    reduction = std::max(reduction - beside * 0.9,
                         reduction / static_cast<double>(std::max<int64_t>(1, model.L / plan.pp)));
  } else if (plan.dp > 1 && plan.zero == 0) {
    // Copied into one buffer and back.
    reduction += streaming_seconds(kind, 4 * gradient_bytes);
  }
  if (model.tied && plan.pp > 1) {
    const double shared = static_cast<double>(model.V * model.C) / plan.tp * bytes_of(plan.grad_dtype);
    reduction += all_reduce_seconds(cluster, group_of(cluster, 2, plan.tp * plan.dp * (plan.pp - 1)), shared);
  }
  result.gradients_s = reduction;
  const double updated = plan.zero > 0 ? parameters / plan.dp : parameters;
  result.update_s = std::max(streaming_seconds(kind, updated * kUpdateBytes), kUpdateKernels * kind.issue_s);
  result.step_s = replay.makespan_s + result.gradients_s + result.update_s;
  return result;
}

}  // namespace tessera
