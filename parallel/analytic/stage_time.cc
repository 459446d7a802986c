#include "parallel/analytic/stage_time.h"

#include <algorithm>

#include "parallel/analytic/fp8_linears.h"
#include "parallel/analytic/offload_time.h"
#include "parallel/analytic/zero_bubble_replay.h"
#include "parallel/pricing/reserved_memory.h"

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

// Dense parameters of a block's feed-forward half.
double mlp_parameters(const TransformerShape& model) {
  if (model.E > 0) return static_cast<double>(model.C * model.E);
  return static_cast<double>((model.gated ? 3 : 2) * model.C * model.F +
                             (model.biases ? model.F + model.C : 0));
}

}  // namespace

int64_t in_flight(const ForeignPlan& plan, int32_t stage, int64_t m) {
  const int64_t after = plan.pp - stage - 1;
  if (plan.schedule == ForeignSchedule::kGpipe) return m * plan.virtual_stages;
  if (plan.splits_backward())
    return std::min<int64_t>(m * plan.virtual_stages, zero_bubble_limit(plan.schedule, plan.pp));
  if (plan.virtual_stages == 1) return std::min(m, after + 1);
  return std::min(m * plan.virtual_stages, after * 2 + int64_t{plan.virtual_stages - 1} * plan.pp + 1);
}

StageTimes::StageTimes(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster)
    : model_(model),
      plan_(plan),
      cluster_(cluster),
      kind_(cluster.kinds[0]),
      block_(with_recompute(model, plan, cluster, Recompute::kNone)),
      selective_(with_recompute(model, plan, cluster, Recompute::kSelective)),
      full_(with_recompute(model, plan, cluster, Recompute::kFull)),
      embedding_(embedding_time(model, plan, cluster)),
      head_(head_time(model, plan, cluster)),
      kept_{kept_bytes(Recompute::kNone), kept_bytes(Recompute::kSelective), kept_bytes(Recompute::kFull)},
      block_parameters_(static_cast<double>(model.block_parameters())),
      expert_parameters_(static_cast<double>(model.expert_parameters())),
      mlp_parameters_(mlp_parameters(model)),
      scales_(scale_time(model, plan, cluster)) {
  price_transfer();
}

StageTimes::StageTimes(const StageTimes& alike, const ForeignPlan& plan)
    : model_(alike.model_),
      plan_(plan),
      cluster_(alike.cluster_),
      kind_(alike.kind_),
      block_(alike.block_),
      selective_(alike.selective_),
      full_(alike.full_),
      embedding_(alike.embedding_),
      head_(alike.head_),
      kept_{alike.kept_[0], alike.kept_[1], alike.kept_[2]},
      block_parameters_(alike.block_parameters_),
      expert_parameters_(alike.expert_parameters_),
      mlp_parameters_(alike.mlp_parameters_),
      scales_(scale_time(model_, plan_, cluster_)) {
  price_transfer();
}

// Between stages: tokens of one micro-batch, by every tp rank whole unless it sends its part only.
void StageTimes::price_transfer() {
  if (plan_.pp == 1) return;
  const double boundary =
      static_cast<double>(plan_.micro_batch * model_.T * model_.C) / plan_.cp * bytes_of(plan_.compute_dtype);
  const bool parts = plan_.scatter_sends || plan_.splits_activations();
  transfer_s_ = send_seconds(cluster_, plan_.tp * plan_.replicas(), parts ? boundary / plan_.tp : boundary);
  if (plan_.scatter_sends && !plan_.splits_activations())
    transfer_s_ += gather_seconds(cluster_, group_of(cluster_, plan_.tp, 1), boundary);
}

StagePasses StageTimes::of(const StageBlocks& blocks, bool first, bool last) const {
  StagePasses passes;
  // The host issues a block's backward pass while the device is still in the forward one; across blocks and
  // ends it gains no lead that lasts.
  const auto add = [&](double count, const Pass& forward, const Pass& backward, const Pass& weight) {
    const double ahead = forward.seconds(kind_);
    passes.forward_s += count * ahead;
    passes.backward_s += count * std::max(backward.compute_s + backward.collective_s,
                                          (forward.kernels + backward.kernels) * kind_.issue_s - ahead);
    passes.weight_s += count * weight.seconds(kind_);
    passes.collective_s += count * (forward.collective_s + backward.collective_s);
  };
  const auto add_blocks = [&](int64_t count, const Pass& again) {
    Pass forward = block_.forward, backward = block_.backward;
    forward += scales_.forward;
    backward += scales_.backward;
    backward += again;
    add(static_cast<double>(count), forward, backward, block_.weight);
    passes.recompute_s += static_cast<double>(count) * again.compute_s;
  };
  add_blocks(blocks.blocks - blocks.full - blocks.selective, {});
  Pass whole = full_.recompute;
  whole += scales_.forward;
  add_blocks(blocks.full, whole);
  add_blocks(blocks.selective, selective_.recompute);
  if (first) add(1, embedding_.forward, embedding_.backward, embedding_.weight);
  if (last) add(1, head_.forward, head_.backward, head_.weight);
  // Sends are synchronous: a stage is busy while its own goes out.
  const double out = last ? 0 : transfer_s_, in = first ? 0 : transfer_s_;
  double forward_wait = 0, backward_wait = 0;
  const double block_forward = block_.forward.seconds(kind_), block_backward = block_.backward.seconds(kind_);
  const auto saved = static_cast<double>(activation_bytes(Recompute::kNone));
  for (size_t i = 0; i < blocks.offloaded.size(); ++i) {
    if (blocks.offloaded[i] == 0) continue;
    const double count = static_cast<double>(blocks.offloaded[i]),
                 bytes = saved * static_cast<double>(i + 1) / 4;
    forward_wait += count * waiting_seconds(cluster_, bytes, block_forward);
    backward_wait += count * waiting_seconds(cluster_, bytes, block_backward);
  }
  if (const double fetched = fetched_bytes(); fetched > 0) {
    const double count = static_cast<double>(blocks.blocks);
    forward_wait += count * waiting_seconds(cluster_, fetched, block_forward);
    backward_wait += count * waiting_seconds(cluster_, fetched, block_backward);
  }
  passes.offload_s = forward_wait + backward_wait;
  passes.forward_s += out + forward_wait;
  passes.backward_s += in + backward_wait;
  passes.weight_s = std::min(passes.weight_s, passes.backward_s);
  passes.send_s = out + in;
  passes.collective_s += out + in;
  return passes;
}

double StageTimes::parameters(int64_t blocks, bool first, bool last) const {
  return counts(blocks, first, last).all();
}

StageParameters StageTimes::counts(int64_t blocks, bool first, bool last) const {
  const double n = static_cast<double>(blocks), t = plan_.weight_parts();
  const double experts = expert_parameters_;
  const double block = block_parameters_ - experts;
  StageParameters own;
  own.dense = n * block;
  if (first) own.dense += static_cast<double>(model_.embedding_parameters());
  if (last)
    own.dense +=
        static_cast<double>(model_.head_parameters() - (model_.tied && first ? model_.V * model_.C : 0));
  own.dense /= t;
  own.experts = n * experts / t / plan_.ep;
  const double sharded_mlp = std::min<double>(n, plan_.sharded_mlp), mlp = mlp_parameters_;
  own.sharded = (std::min<double>(n, plan_.sharded_attention) * (block - mlp) + sharded_mlp * mlp) / t;
  if (plan_.lora == 0) {
    own.trained = own.dense, own.trained_experts = own.experts, own.trained_sharded = own.sharded;
  } else {
    const TransformerShape::Adapters adapters = model_.adapter_parameters(plan_.lora);
    own.trained = n * (static_cast<double>(adapters.whole) + static_cast<double>(adapters.split) / t);
    own.dense += own.trained;
  }
  return own;
}

double StageTimes::largest_sharded() const {
  const double mlp = mlp_parameters_;
  const double block = block_parameters_ - expert_parameters_;
  return std::max(plan_.sharded_attention > 0 ? block - mlp : 0, plan_.sharded_mlp > 0 ? mlp : 0) / plan_.tp;
}

double StageTimes::fetched_bytes() const {
  if (plan_.offload_params == 0) return 0;
  const double weights =
      plan_.offload_params / 4.0 * counts(1, false, false).all() * bytes_of(plan_.compute_dtype);
  return plan_.zero >= 3 ? weights / plan_.replicas() : weights;
}

int64_t StageTimes::kept_bytes(Recompute recompute) const {
  const double tokens = static_cast<double>(plan_.micro_batch * model_.T) / plan_.cp,
               e = bytes_of(plan_.compute_dtype);
  const double C = static_cast<double>(model_.C), F = static_cast<double>(model_.F), t = plan_.tp;
  const double own = plan_.splits_activations() ? tokens / t : tokens;
  if (recompute == Recompute::kFull) return static_cast<int64_t>(own * C * e);
  const double attention = 2 * static_cast<double>(model_.mixed_width() + model_.KV * model_.head_size());
  // Operands of the norms and of the products that read them, and dropout masks; queries, keys, values and
  // the mixed result; what the feed-forward keeps.
  const double whole = own * C * (4 * e + (model_.dropout > 0 ? 2 : 0));
  const double mixed = static_cast<double>(model_.mixed_width());
  double parts = tokens / t * e * (attention + (model_.gated ? 3 : 2) * F);
  if (model_.E > 0) {
    // Slots keep what went to their experts, and what came of it, for the sum over a token's experts.
    const double slots = tokens * static_cast<double>(model_.K) * model_.capacity;
    parts = tokens / t * e * attention + slots * e * (2 * C + (model_.gated ? 3 : 2) * F / t);
  }
  // Adapters keep their narrow middle: of four products around attention, and of the feed-forward's.
  if (plan_.lora > 0) parts += tokens * e * static_cast<double>(plan_.lora) * (model_.E > 0 ? 4 : 6);
  // Codes in place of what nothing but linear layers reads, and beside the mixed result, which attention
  // reads again. Adapters read all of it as it was.
  if (const Fp8Linears fp8 = fp8_linears(model_, plan_); fp8.any() && plan_.lora == 0)
    parts += own * C * (1 - e) * (fp8.qkv + fp8.up) + tokens / t * (mixed * fp8.o + F * (1 - e) * fp8.down);
  double scores = 0;
  if (!plan_.fused_attention && recompute != Recompute::kSelective)
    scores = tokens * static_cast<double>(model_.T * model_.H) / t * (model_.dropout > 0 ? 2 * e + 1 : e);
  return static_cast<int64_t>(whole + parts + scores);
}

int64_t StageTimes::end_activation_bytes(bool first, bool last) const {
  const double tokens = static_cast<double>(plan_.micro_batch * model_.T) / plan_.cp,
               e = bytes_of(plan_.compute_dtype);
  const double C = static_cast<double>(model_.C),
               own = plan_.splits_activations() ? tokens / plan_.tp : tokens;
  double bytes = first ? own * C * (model_.dropout > 0 ? 1 : 0) : 0;
  if (last)
    bytes += 2 * own * C * e + tokens * static_cast<double>(model_.V) / plan_.tp * 4;  // logits in f32
  return static_cast<int64_t>(bytes);
}

int64_t StageTimes::offloaded_bytes(int32_t quarters) const {
  return activation_bytes(Recompute::kNone) * quarters / 4;
}

StageMemory StageTimes::memory(const StageBlocks& stage, bool first, bool last, int64_t flights,
                               int64_t chunks) const {
  StageMemory memory;
  const StageParameters own = counts(stage.blocks, first, last);
  const double e = bytes_of(plan_.compute_dtype);
  // Bytes of a rank: parts that are spread from ZeRO stage `from` on, with what is sharded one by one.
  const auto spread = [&](double dense, double sharded, double experts, int32_t from) {
    if (plan_.zero >= from) return dense / plan_.replicas() + experts / (plan_.dp * plan_.cp);
    return (dense - sharded) + sharded / plan_.replicas() + experts;
  };
  const double weights = spread(own.dense, own.sharded, own.experts, 3) * e;
  const double blocks_weights =
      spread(counts(stage.blocks, false, false).dense, own.sharded, own.experts, 3) * e;
  const double state =
      spread(own.trained, own.trained_sharded, own.trained_experts, 1) * optimizer_bytes(plan_);
  const double away = plan_.offload_params / 4.0 * blocks_weights,
               state_away = plan_.offload_optimizer / 4.0 * state;
  memory.parameters = static_cast<int64_t>(weights - away);
  memory.gradients = static_cast<int64_t>(spread(own.trained, own.trained_sharded, own.trained_experts, 2) *
                                          bytes_of(plan_.grad_dtype));
  memory.optimizer = static_cast<int64_t>(state - state_away);
  const int64_t saved = activation_bytes(Recompute::kNone);
  int64_t kept = (stage.blocks - stage.full - stage.selective) * saved +
                 stage.full * activation_bytes(Recompute::kFull) +
                 stage.selective * activation_bytes(Recompute::kSelective);
  int64_t gone = 0, in_transit = 0;
  for (size_t i = 0; i < stage.offloaded.size(); ++i) {
    const int64_t part = offloaded_bytes(static_cast<int32_t>(i) + 1);
    gone += stage.offloaded[i] * part;
    if (stage.offloaded[i] > 0) in_transit = part;
  }
  kept -= gone;
  memory.activations = flights * end_activation_bytes(first, false) + (kept * flights + chunks - 1) / chunks;
  memory.logits = end_activation_bytes(false, last);
  // One block that goes to the host or comes back, beside the one at work.
  memory.transient = kept_[0] + in_transit;
  // Two blocks' weights, or two operators', are gathered at once, in slices where chunks says so.
  if (plan_.zero >= 3)
    memory.gathered = static_cast<int64_t>(2 * counts(1, false, false).all() * e / plan_.chunks);
  else if (own.sharded > 0)
    memory.gathered = static_cast<int64_t>(2 * largest_sharded() * e / plan_.chunks);
  if (away > 0) memory.gathered += static_cast<int64_t>(2 * fetched_bytes());
  memory.host = static_cast<int64_t>(away + state_away) + (gone * flights + chunks - 1) / chunks;
  memory.reserved = reserved_bytes(kind_);
  return memory;
}

}  // namespace tessera
