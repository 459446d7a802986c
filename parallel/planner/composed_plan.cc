#include "parallel/planner/composed_plan.h"

#include <algorithm>
#include <optional>

#include "graph/base/parallel_for.h"
#include "graph/base/text.h"
#include "parallel/composition/strategy_profile.h"
#include "parallel/search/chain_cut.h"

namespace tessera {

namespace {

// Distinct micro-batches: the first, a steady one, and without a pipeline the last.
constexpr int64_t kUnlikeMicroBatches = 3;

int32_t micro_batches(const StrategySpec& spec, int64_t global_batch) {
  return static_cast<int32_t>(global_batch / (spec.micro_batch * spec.data()));
}

PipelineShape shape_of(const StrategySpec& spec, int64_t global_batch) {
  return {spec.schedule, spec.pp, spec.virtual_stages, micro_batches(spec, global_batch)};
}

double steady_seconds(const StepProfile& profile, int32_t block) {
  double sum = 0;
  for (const BlockPass pass : {BlockPass::kForward, BlockPass::kBackward, BlockPass::kWeight}) {
    const double steady = profile.cost(block, Turn::kSteady, pass).seconds;
    sum += steady > 0 ? steady
                      : std::max(profile.cost(block, Turn::kFirst, pass).seconds,
                                 profile.cost(block, Turn::kLast, pass).seconds);
  }
  return sum;
}

// ChainSeconds: seconds of a steady micro-batch in every block, forward and backward; ends are separate.
struct ChainSeconds {
  std::vector<double> blocks;
  double first = 0, last = 0;
};

ChainSeconds chain_seconds(const ComposedModel& model, const StepProfile& profile) {
  ChainSeconds seconds;
  std::vector<double> known;
  for (int32_t b = 0; b <= profile.map.after(); ++b) known.push_back(steady_seconds(profile, b));
  for (const int32_t like : model.like) seconds.blocks.push_back(known[static_cast<size_t>(like) + 1]);
  seconds.first = known.front(), seconds.last = known.back();
  return seconds;
}

void set_recomputed(ComposedStages& stages, int32_t device, int64_t count) {
  for (int32_t s = 0; s < stages.shape.stages(); ++s) {
    if (stages.shape.device_of(s) != device) continue;
    std::vector<StageBlock>& blocks = stages.blocks[static_cast<size_t>(s)];
    for (StageBlock& block : blocks)
      if (!block.is_end) block.variant = count-- > 0 ? 1 : 0;
  }
}

}  // namespace

int64_t ComposedPlan::most_bytes() const {
  return std::ranges::max(devices, {}, &DeviceBytes::total).total();
}

ComposedPlan::Blocks ComposedPlan::blocks_on(int32_t device) const {
  Blocks blocks;
  for (int32_t s = 0; s < stages.shape.stages(); ++s) {
    if (stages.shape.device_of(s) != device) continue;
    for (const StageBlock& block : stages.blocks[static_cast<size_t>(s)])
      if (!block.is_end) ++blocks.count, blocks.recomputed += block.variant;
  }
  return blocks;
}

PlanComposer::PlanComposer(const ComposedModel& model, const Cluster& cluster, const KernelCatalog& catalog,
                           int64_t global_batch, int64_t limit)
    : model_(model), cluster_(cluster), catalog_(catalog), global_batch_(global_batch), limit_(limit) {
  const BlockMap map = find_blocks(model.few);
  std::vector<int64_t> times(static_cast<size_t>(map.after()) + 1, 0);
  times.front() = times.back() = 1;
  for (const int32_t like : model.like) ++times[static_cast<size_t>(like) + 1];
  std::vector<int32_t> block(model.few.tensors().size(), 0);
  for (size_t n = 0; n < model.few.nodes().size(); ++n)
    for (const TensorId input : model.few.nodes()[n].inputs)
      if (model.few.nodes()[n].phase == Phase::kForward) block[index(input)] = map.of_node[n];
  for (const Gradient& it : model.few.gradients())
    gradient_bytes_ +=
        bytes(model.few.type(it.parameter)) * times[static_cast<size_t>(block[index(it.parameter)])];
}

std::string PlanComposer::ProfiledStep::key() const { return format("{} {}", to_text(spec), micro_batches); }

Result<PlanComposer::ProfiledStep> PlanComposer::step_of(const BlockProfile& of) const {
  const auto& [spec, recomputes, alone] = of;
  const int64_t at_once = spec.micro_batch * spec.data();
  if (!alone && (at_once < 1 || global_batch_ % at_once != 0))
    return Status(
        StatusCode::kInvalidArgument,
        format("a batch of {} sequences is not a multiple of {} at once (mb={} on {} parts of the batch)",
               global_batch_, at_once, spec.micro_batch, spec.data()));
  if (!alone && global_batch_ / at_once > kMostMicroBatches)
    return Status(StatusCode::kInvalidArgument,
                  format("{} micro-batches of {} sequences at once; wanted {} at most: use a larger mb",
                         global_batch_ / at_once, at_once, kMostMicroBatches));
  ProfiledStep it{spec, alone ? 1 : std::min(global_batch_ / at_once, kUnlikeMicroBatches)};
  it.spec.recompute = recomputes ? RecomputeForm::kFull : RecomputeForm::kNone;
  if (spec.pp == 1) return it;
  it.spec.pp = 2, it.spec.virtual_stages = 1;
  it.spec.schedule =
      PipelineShape{.kind = spec.schedule}.splits_backward() ? ScheduleKind::kZbH1 : ScheduleKind::k1F1B;
  return it;
}

Result<StepProfile> PlanComposer::make(const ProfiledStep& it) const {
  return profile_strategy(model_.few, it.spec, it.micro_batches * it.spec.micro_batch * it.spec.data(),
                          model_.symbols, cluster_, catalog_);
}

Result<const StepProfile*> PlanComposer::profile(const BlockProfile& of) {
  TSR_ASSIGN_OR_RETURN(const ProfiledStep it, step_of(of));
  auto at = profiles_.find(it.key());
  if (at == profiles_.end()) at = profiles_.emplace(it.key(), make(it)).first;
  if (!at->second.ok()) return at->second.status();
  return &*at->second;
}

void PlanComposer::prepare(std::span<const BlockProfile> wanted) {
  std::map<std::string, ProfiledStep> missing;
  for (const BlockProfile& of : wanted)
    if (const auto it = step_of(of); it.ok() && !profiles_.contains(it->key())) missing.emplace(it->key(), *it);
  if (missing.size() < 2) return;
  std::vector<std::pair<std::string, ProfiledStep>> order(missing.begin(), missing.end());
  std::vector<std::optional<Result<StepProfile>>> made(order.size());
  parallel_for(order.size(), [&](size_t i) { made[i] = make(order[i].second); });
  for (size_t i = 0; i < order.size(); ++i) profiles_.emplace(order[i].first, *std::move(made[i]));
}

Result<ComposedStages> PlanComposer::cut(const StrategySpec& spec, const StepProfile& profile) const {
  const ChainSeconds seconds = chain_seconds(model_, profile);
  ComposedStages stages{.shape = shape_of(spec, global_batch_), .blocks = {}};
  const std::vector<int64_t> counts =
      cut_chain(seconds.blocks, {seconds.first, seconds.last}, stages.shape.stages());
  if (counts.empty())
    return Status(StatusCode::kInvalidArgument,
                  format("{} stages of a model with {} blocks; the most is one for each",
                         stages.shape.stages(), blocks()));
  auto next = model_.like.begin();
  for (const int64_t count : counts) {
    std::vector<StageBlock>& stage = stages.blocks.emplace_back();
    if (stages.blocks.size() == 1) stage.push_back({.block = 0, .variant = 0, .is_end = true});
    for (int64_t i = 0; i < count; ++i) stage.push_back({.block = *next++ + 1});
  }
  stages.blocks.back().push_back({.block = profile.map.after(), .variant = 0, .is_end = true});
  return stages;
}

// A device's memory depends on its own blocks only, so the least count of each is bisected, all at once.
Status PlanComposer::recompute_to_fit(std::span<const StepProfile> variants, ComposedPlan& plan) {
  const auto count = static_cast<size_t>(plan.stages.shape.devices);
  std::vector<int64_t> low(count, -1), high(count, 0);  // low: too few; high: enough, if possible
  for (size_t d = 0; d < count; ++d)
    if (plan.devices[d].total() > limit_) low[d] = 0, high[d] = plan.blocks_on(static_cast<int32_t>(d)).count;
  for (;;) {
    bool is_done = true;
    std::vector<int64_t> tried(count);
    for (size_t d = 0; d < count; ++d) {
      tried[d] = high[d] - low[d] > 1 ? (low[d] + high[d]) / 2 : high[d];
      is_done = is_done && tried[d] == high[d];
      set_recomputed(plan.stages, static_cast<int32_t>(d), tried[d]);
    }
    TSR_ASSIGN_OR_RETURN(plan.devices, composed_memory(variants, plan.stages, &schedules_));
    if (is_done) return {};
    for (size_t d = 0; d < count; ++d)
      if (tried[d] != high[d]) (plan.devices[d].total() > limit_ ? low[d] : high[d]) = tried[d];
  }
}

Result<ComposedPlan> PlanComposer::compose(const StrategySpec& spec) {
  const bool chooses = spec.recompute == RecomputeForm::kAuto || spec.recompute == RecomputeForm::kSome;
  const bool all = spec.recompute == RecomputeForm::kFull;
  TSR_ASSIGN_OR_RETURN(const StepProfile* const kept, profile({spec, false}));
  ComposedPlan plan{.spec = spec, .stages = {}, .time = {}, .devices = {}};
  TSR_ASSIGN_OR_RETURN(plan.stages, cut(spec, *kept));
  std::vector<StepProfile> variants = {*kept};
  TSR_ASSIGN_OR_RETURN(plan.devices, composed_memory(variants, plan.stages, &schedules_));
  if (all || (chooses && plan.most_bytes() > limit_)) {
    TSR_ASSIGN_OR_RETURN(const StepProfile* const again, profile({spec, true}));
    variants.push_back(*again);
    if (all) {
      for (int32_t d = 0; d < plan.stages.shape.devices; ++d) set_recomputed(plan.stages, d, blocks());
      TSR_ASSIGN_OR_RETURN(plan.devices, composed_memory(variants, plan.stages, &schedules_));
    } else {
      TSR_RETURN_IF_ERROR(recompute_to_fit(variants, plan));
    }
  }
  TSR_ASSIGN_OR_RETURN(plan.time, composed_time(variants, plan.stages, cluster_, &schedules_));
  int64_t recomputed = 0;
  for (int32_t d = 0; d < plan.stages.shape.devices; ++d) recomputed += plan.blocks_on(d).recomputed;
  plan.spec.recompute = recomputed == 0          ? RecomputeForm::kNone
                        : recomputed == blocks() ? RecomputeForm::kFull
                                                 : RecomputeForm::kSome;
  return plan;
}

}  // namespace tessera
