#include "parallel/planner/composed_bound.h"

#include <algorithm>
#include <cmath>

#include "parallel/pipeline/pipeline_schedule.h"
#include "parallel/pricing/link_time.h"

namespace tessera {

namespace {

// Share of the activations: devices with unequal stages may hold less than the average.
constexpr double kEven = 0.97;

// Exposed share of reductions in every micro-batch: kernels wait for them as a pass's own collectives follow them.
constexpr double kExposed = 0.7;

double first_seconds(const StepProfile& profile, int32_t block, BlockPass pass) {
  return profile.cost(block, Turn::kFirst, pass).seconds;
}

double passes_seconds(const StepProfile& profile, int32_t block) {
  double sum = 0;
  for (const BlockPass pass : {BlockPass::kForward, BlockPass::kBackward, BlockPass::kWeight})
    sum += first_seconds(profile, block, pass);
  return sum;
}

int64_t kept_bytes(const StepProfile& profile, int32_t block) {
  return profile.cost(block, Turn::kFirst, BlockPass::kForward).left;
}

// Lower bound of the pairs of stage and micro-batch that a device holds at its peak.
int32_t live_pairs(const PipelineShape& shape, int32_t device) {
  const int32_t ahead = shape.devices - device, count = shape.micro_batches;
  switch (shape.kind) {
    case ScheduleKind::kInterleaved:
      return count % shape.devices == 0 ? live_bound(shape, device) : std::min(count, ahead);
    case ScheduleKind::kZbH2: return std::min(count, 2 * ahead - 1);
    case ScheduleKind::kZbV: return std::min(2 * count, shape.devices);
    case ScheduleKind::kGpipe: return count;
    default: return std::min(count, ahead);
  }
}

// One micro-batch in one of several stages, with separate weight gradients.
StrategySpec alone(StrategySpec group) {
  group.pp = 2, group.schedule = ScheduleKind::kZbH1;
  return group;
}

}  // namespace

PlanComposer::BlockProfile GroupBound::profile_of(const StrategySpec& group, bool recomputes) {
  return {alone(group), recomputes, true};
}

Result<GroupBound> GroupBound::of(const StrategySpec& group, PlanComposer& composer) {
  TSR_ASSIGN_OR_RETURN(const StepProfile* const kept, composer.profile(profile_of(group)));
  return GroupBound(group, composer, *kept);
}

GroupBound::GroupBound(const StrategySpec& group, PlanComposer& composer, const StepProfile& kept)
    : group_(group),
      composer_(&composer),
      kept_(&kept),
      persistent_(kept.copies.size(), 0),
      gradients_(kept.copies.size(), 0) {
  for (const PersistentBytes& it : kept.persistent)
    if (it.blocks.size() == 1 && (it.kind == SlotKind::kParameter || it.kind == SlotKind::kState))
      persistent_[static_cast<size_t>(it.blocks[0])] += static_cast<double>(it.bytes);
  for (size_t b = 0; b < gradients_.size(); ++b)
    for (const BlockPass pass : {BlockPass::kForward, BlockPass::kBackward, BlockPass::kWeight})
      gradients_[b] += static_cast<double>(kept.cost(static_cast<int32_t>(b), Turn::kFirst, pass).left);
  const auto add = [&](int32_t block) {
    pass_s_ += passes_seconds(kept, block);
    update_s_ += kept.cost(block, Turn::kLast, BlockPass::kUpdate).seconds;
  };
  add(0);
  add(kept.map.after());
  for (const int32_t like : composer.model().like) add(like + 1);
  gradient_bytes_ = static_cast<double>(composer.gradient_bytes()) / (group.tp * group.ep);
}

double GroupBound::seconds(int64_t devices) const {
  const double parts = static_cast<double>(group_.tp) * group_.cp * group_.ep;
  const double micro_batches =
      static_cast<double>(composer_->global_batch()) / static_cast<double>(group_.micro_batch * group_.ep);
  return micro_batches * pass_s_ * parts / static_cast<double>(devices);
}

const GroupBound::Again& GroupBound::again() {
  if (again_) return *again_;
  again_.emplace();
  const Result<const StepProfile*> again = composer_->profile(profile_of(group_, true));
  if (!again.ok()) return *again_;
  const std::vector<int32_t>& like = composer_->model().like;
  for (const int32_t it : like) {
    again_->bytes += static_cast<double>(kept_bytes(*kept_, it + 1) - kept_bytes(**again, it + 1));
    again_->seconds += passes_seconds(**again, it + 1) - passes_seconds(*kept_, it + 1);
  }
  again_->bytes = std::max(0.0, again_->bytes / static_cast<double>(like.size()));
  again_->seconds = std::max(0.0, again_->seconds / static_cast<double>(like.size()));
  return *again_;
}

const std::vector<GroupBound::Stage>& GroupBound::stages_of(const StrategySpec& plan) {
  const auto [at, is_new] = stages_.try_emplace(plan.pp * plan.virtual_stages);
  if (!is_new) return at->second;
  if (const Result<ComposedStages> cut = composer_->cut(plan, *kept_); cut.ok())
    for (const std::vector<StageBlock>& blocks : cut->blocks) {
      Stage& stage = at->second.emplace_back();
      for (const StageBlock& it : blocks) {
        const auto b = static_cast<size_t>(it.block);
        stage.forward += first_seconds(*kept_, it.block, BlockPass::kForward);
        stage.backward += first_seconds(*kept_, it.block, BlockPass::kBackward);
        stage.weight += first_seconds(*kept_, it.block, BlockPass::kWeight);
        stage.persistent += persistent_[b];
        stage.gradients += std::max(0.0, gradients_[b]);
        if (!it.is_end) ++stage.blocks, stage.kept += static_cast<double>(kept_bytes(*kept_, it.block));
      }
    }
  return at->second;
}

double GroupBound::update_seconds(const StrategySpec& plan) const {
  const int32_t parts = plan.zero >= 1 ? plan.data() * plan.cp : 1;
  return update_s_ / plan.pp / parts;
}

double GroupBound::reduction_seconds(const StrategySpec& plan) const {
  const int32_t members = plan.dp * plan.cp;
  if (members < 2) return 0;
  const RankGroup ranks = group_of(composer_->cluster(), members, plan.tp);
  return gather_seconds(composer_->cluster(), ranks, gradient_bytes_ / plan.pp);
}

double GroupBound::lasting_bytes(const StrategySpec& plan, const Stage& stage) const {
  const double spread = plan.zero >= 1 ? plan.data() * plan.cp : 1;
  const bool sums = plan.pp > 1 || composer_->global_batch() > plan.micro_batch * plan.data();
  const double gradients = sums ? stage.gradients / (plan.zero >= 2 ? spread : 1) : 0;
  return plan.offload.any() ? 0 : stage.persistent / spread + gradients;
}

double GroupBound::again_seconds(const StrategySpec& plan, const Stage& device, int32_t live) {
  const auto all = static_cast<double>(device.blocks);
  if (plan.recompute == RecomputeForm::kFull) return all * again().seconds;
  if (plan.offload.any() || plan.recompute == RecomputeForm::kNone) return 0;
  const double waiting = kEven * live / plan.virtual_stages;
  const double excess =
      lasting_bytes(plan, device) + waiting * device.kept - static_cast<double>(composer_->limit());
  if (excess <= 0) return 0;
  return std::min(all, excess / std::max(1.0, waiting * again().bytes)) * again().seconds;
}

double GroupBound::seconds(const StrategySpec& plan) {
  const int64_t micro_batches = composer_->global_batch() / (plan.micro_batch * plan.data());
  const std::vector<Stage>& stages = stages_of(plan);
  if (stages.empty() || micro_batches > kMostMicroBatches) return INFINITY;
  const auto count = static_cast<int32_t>(micro_batches);
  // Bytes kept between micro-batches exceed the limit even if spread evenly over the stages.
  Stage whole;
  for (const Stage& it : stages) whole.persistent += it.persistent, whole.gradients += it.gradients;
  if (lasting_bytes(plan, whole) / plan.pp > static_cast<double>(composer_->limit())) return INFINITY;
  const PipelineShape shape{plan.schedule, plan.pp, plan.virtual_stages, count};
  double passes_s = 0;
  for (int32_t d = 0; d < plan.pp; ++d) {
    Stage own;
    double before = 0, after = 0;
    int32_t first = shape.stages();
    for (int32_t s = shape.stages() - 1; s >= 0; --s) {
      if (shape.device_of(s) != d) continue;
      const Stage& it = stages[static_cast<size_t>(s)];
      own.forward += it.forward, own.backward += it.backward, own.weight += it.weight,
          own.blocks += it.blocks;
      own.persistent += it.persistent, own.gradients += it.gradients, own.kept += it.kept, first = s;
    }
    for (int32_t s = 0; s < first; ++s) {
      const Stage& it = stages[static_cast<size_t>(s)];
      before += it.forward;
      after += it.backward + (shape.splits_backward() ? 0 : it.weight);
    }
    const double again_s = again_seconds(plan, own, plan.pp > 1 ? live_pairs(shape, d) : 1);
    const double chain_s = own.forward + own.backward + again_s + (shape.splits_backward() ? 0 : own.weight);
    const double apart_s = shape.splits_backward() ? own.weight : 0;
    passes_s = std::max(passes_s, before + count * chain_s + std::max(after, count * apart_s));
  }
  // In every micro-batch from ZeRO 2 on; with ZeRO 3 weights, at least half as wide as gradients, are gathered for both passes.
  const double reduction_s = reduction_seconds(plan);
  if (plan.zero >= 2) {
    const double reductions_s = count * reduction_s * (plan.zero == 3 && !plan.keep ? 2 : 1);
    const bool are_alone = plan.tp * plan.cp * plan.ep == 1;
    passes_s = are_alone ? std::max(passes_s, reductions_s) : passes_s + kExposed * reductions_s;
  }
  const double others_s = std::max(update_seconds(plan), reduction_s);
  return plan.pp > 1 ? passes_s + others_s : std::max(passes_s, others_s);
}

int64_t GroupBound::bytes() const {
  int64_t most = 0;
  for (int32_t b = 0; b <= kept_->map.after(); ++b)
    most = std::max(most, kept_->cost(b, Turn::kFirst, BlockPass::kForward).peak);
  return most;
}

}  // namespace tessera
