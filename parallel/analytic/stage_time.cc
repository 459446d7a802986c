#include "parallel/analytic/stage_time.h"

#include <algorithm>

namespace tessera {

namespace {

double bytes_of(DType dtype) {
  return static_cast<double>(info(dtype).block_bytes) / info(dtype).block_elements;
}

BlockTime with_recompute(const TransformerShape& model, ForeignPlan plan, const Cluster& cluster,
                         Recompute recompute) {
  plan.recompute = recompute;
  return block_time(model, plan, cluster);
}

constexpr int64_t kReserved = int64_t{3} << 30;  // context, communicators, workspaces of one device

}  // namespace

int64_t in_flight(const ForeignPlan& plan, int32_t stage, int64_t m) {
  const int64_t after = plan.pp - stage - 1;
  if (plan.schedule == ForeignSchedule::kGpipe) return m * plan.virtual_stages;
  if (plan.virtual_stages == 1) return std::min(m, after + 1);
  return std::min(m * plan.virtual_stages, after * 2 + int64_t{plan.virtual_stages - 1} * plan.pp + 1);
}

StageTimes::StageTimes(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster)
    : model_(model),
      plan_(plan),
      kind_(cluster.kinds[0]),
      block_(with_recompute(model, plan, cluster, Recompute::kNone)),
      selective_(with_recompute(model, plan, cluster, Recompute::kSelective)),
      full_(with_recompute(model, plan, cluster, Recompute::kFull)),
      embedding_(embedding_time(model, plan, cluster)),
      head_(head_time(model, plan, cluster)) {
  if (plan.pp == 1) return;
  // Between stages: tokens of one micro-batch, by every tp rank whole unless it sends its part only.
  const double boundary =
      static_cast<double>(plan.micro_batch * model.T * model.C) * bytes_of(plan.compute_dtype);
  const bool parts = plan.scatter_sends || plan.sequence_parallel;
  transfer_s_ = send_seconds(cluster, plan.tp * plan.dp, parts ? boundary / plan.tp : boundary);
  if (plan.scatter_sends && !plan.sequence_parallel)
    transfer_s_ += gather_seconds(cluster, group_of(cluster, plan.tp, 1), boundary);
}

StagePasses StageTimes::of(const StageBlocks& blocks, bool first, bool last) const {
  Pass forward = static_cast<double>(blocks.blocks) * block_.forward;
  Pass backward = static_cast<double>(blocks.blocks) * block_.backward;
  Pass again = static_cast<double>(blocks.full) * full_.recompute;
  again += static_cast<double>(blocks.selective) * selective_.recompute;
  backward += again;
  if (first) forward += embedding_.forward, backward += embedding_.backward;
  if (last) forward += head_.forward, backward += head_.backward;
  StagePasses passes;
  // Sends are synchronous: a stage is busy while its own goes out.
  const double out = last ? 0 : transfer_s_, in = first ? 0 : transfer_s_;
  passes.forward_s = forward.seconds(kind_);
  passes.backward_s = backward.seconds(kind_);
  // Without stages between, the host starts on the backward pass while the device is still in the forward
  // one.
  if (plan_.pp == 1)
    passes.backward_s = std::max(backward.compute_s + backward.collective_s,
                                 (forward.kernels + backward.kernels) * kind_.issue_s - passes.forward_s);
  passes.forward_s += out;
  passes.backward_s += in;
  passes.recompute_s = again.compute_s;
  passes.send_s = out + in;
  passes.collective_s = forward.collective_s + backward.collective_s + out + in;
  return passes;
}

double StageTimes::parameters(int64_t blocks, bool first, bool last) const {
  double own = static_cast<double>(blocks) * static_cast<double>(model_.block_parameters());
  if (first) own += static_cast<double>(model_.embedding_parameters());
  if (last)
    own += static_cast<double>(model_.head_parameters() - (model_.tied && first ? model_.V * model_.C : 0));
  return own / plan_.tp;
}

int64_t StageTimes::activation_bytes(Recompute recompute) const {
  const double tokens = static_cast<double>(plan_.micro_batch * model_.T), e = bytes_of(plan_.compute_dtype);
  const double C = static_cast<double>(model_.C), F = static_cast<double>(model_.F), t = plan_.tp;
  const double own = plan_.sequence_parallel ? tokens / t : tokens;
  if (recompute == Recompute::kFull) return static_cast<int64_t>(own * C * e);
  const double kv = 2 * static_cast<double>(model_.KV) * (C / static_cast<double>(model_.H));
  // Operands of the norms and of the products that read them, and dropout masks; queries, keys, values and
  // the mixed result; what the feed-forward keeps.
  const double whole = own * C * (4 * e + (model_.dropout > 0 ? 2 : 0));
  const double parts = tokens / t * e * (2 * C + kv + (model_.gated ? 3 : 2) * F);
  double scores = 0;
  if (!plan_.fused_attention && recompute != Recompute::kSelective)
    scores = tokens * static_cast<double>(model_.T * model_.H) / t * (model_.dropout > 0 ? 2 * e + 1 : e);
  return static_cast<int64_t>(whole + parts + scores);
}

int64_t StageTimes::end_activation_bytes(bool first, bool last) const {
  const double tokens = static_cast<double>(plan_.micro_batch * model_.T), e = bytes_of(plan_.compute_dtype);
  const double C = static_cast<double>(model_.C), own = plan_.sequence_parallel ? tokens / plan_.tp : tokens;
  double bytes = first ? own * C * (model_.dropout > 0 ? 1 : 0) : 0;
  if (last)
    bytes += 2 * own * C * e + tokens * static_cast<double>(model_.V) / plan_.tp * 4;  // logits in f32
  return static_cast<int64_t>(bytes);
}

StageMemory StageTimes::memory(const StageBlocks& stage, bool first, bool last, int64_t flights,
                               int64_t chunks) const {
  StageMemory memory;
  const double count = parameters(stage.blocks, first, last), parts = plan_.dp,
               e = bytes_of(plan_.compute_dtype);
  memory.parameters = static_cast<int64_t>(count * e / (plan_.zero >= 3 ? parts : 1));
  memory.gradients = static_cast<int64_t>(count * bytes_of(plan_.grad_dtype) / (plan_.zero >= 2 ? parts : 1));
  // Master weights where products are computed in a shorter type, and two moments, in f32.
  memory.optimizer = static_cast<int64_t>(count * (plan_.compute_dtype == DType::kF32 ? 8 : 12) /
                                          (plan_.zero >= 1 ? parts : 1));
  const int64_t kept = (stage.blocks - stage.full - stage.selective) * activation_bytes(Recompute::kNone) +
                       stage.full * activation_bytes(Recompute::kFull) +
                       stage.selective * activation_bytes(Recompute::kSelective);
  memory.activations = flights * end_activation_bytes(first, false) + (kept * flights + chunks - 1) / chunks;
  memory.logits = end_activation_bytes(false, last);
  memory.transient = activation_bytes(Recompute::kNone);
  // Under ZeRO-3 two blocks' weights are gathered at once.
  if (plan_.zero >= 3)
    memory.gathered = static_cast<int64_t>(2 * static_cast<double>(model_.block_parameters()) / plan_.tp * e);
  memory.reserved = kReserved;
  return memory;
}

}  // namespace tessera
