#include "capi/engine/composed_estimate.h"

#include <algorithm>
#include <string>

#include "capi/engine/entry_graphs.h"
#include "capi/engine/settings.h"
#include "graph/base/text.h"
#include "graph/transform/adapters.h"
#include "graph/transform/fewer_blocks.h"
#include "parallel/analytic/stage_time.h"
#include "parallel/composition/staged_plan.h"
#include "parallel/composition/strategy_profile.h"
#include "parallel/pricing/absent_catalog.h"

namespace tessera {

namespace {

Status unsupported(std::string what) { return Status(StatusCode::kUnsupported, std::move(what)); }

ScheduleKind schedule_of(const ForeignPlan& plan) {
  if (plan.pp == 1) return ScheduleKind::kNone;
  switch (plan.schedule) {
    case ForeignSchedule::kGpipe: return ScheduleKind::kGpipe;
    case ForeignSchedule::k1F1B: return ScheduleKind::k1F1B;
    case ForeignSchedule::kInterleaved: return ScheduleKind::kInterleaved;
    case ForeignSchedule::kZbH1: return ScheduleKind::kZbH1;
    case ForeignSchedule::kZbH2: return ScheduleKind::kZbH2;
    case ForeignSchedule::kZbV: return ScheduleKind::kZbV;
  }
  return ScheduleKind::k1F1B;
}

// Everything but what is recomputed, which stages say.
Result<StrategySpec> strategy_of(const ForeignPlan& plan) {
  if (!plan.fused_attention) return unsupported("attention=unfused is a trait of other software");
  if (plan.grad_dtype != DType::kF32)
    return unsupported(format("grad_dtype={} is a trait of other software", to_text(plan.grad_dtype)));
  if (plan.sharded_attention > 0 || plan.sharded_mlp > 0)
    return unsupported("operators are sharded one by one");
  const auto tier = [](int32_t quarters) { return quarters == 0 ? Tier::kDevice : Tier::kHost; };
  for (const int32_t quarters : {plan.offload_optimizer, plan.offload_params, plan.offload_activations})
    if (quarters != 0 && quarters != 4) return unsupported("a part of what could wait on the host does");
  StrategySpec spec;
  spec.dp = plan.dp, spec.tp = plan.tp, spec.pp = plan.pp, spec.cp = plan.cp, spec.ep = plan.ep;
  spec.form = plan.form, spec.grid = plan.grid, spec.context = plan.context;
  spec.sp = plan.sequence_parallel && plan.tp > 1, spec.zero = plan.zero, spec.micro_batch = plan.micro_batch;
  spec.schedule = schedule_of(plan);
  spec.virtual_stages = plan.pp == 1 ? 1 : plan.virtual_stages;
  spec.chunks = plan.chunks;
  spec.offload.optimizer = tier(plan.offload_optimizer);
  spec.offload.params = tier(plan.offload_params);
  spec.offload.activations = tier(plan.offload_activations);
  return spec;
}

// The forward graph as it would be trained.
Result<Graph> forward_of(ModelConfig config, const TransformerShape& model) {
  if (model.dropout > 0) config.reals["dropout"] = model.dropout;
  return build_model(config);
}

Result<Graph> step_of(Graph forward, const TransformerShape& model, const ForeignPlan& plan) {
  if (plan.lora > 0) {
    TSR_ASSIGN_OR_RETURN(
        forward, with_adapters(forward, adaptable_weights(forward), AdapterOptions{.rank = plan.lora}));
  }
  Options options;
  options["precision"] = std::string(plan.fp8_linears ? "bf16" : to_text(plan.compute_dtype));
  options["fused_loss"] = std::string("off");
  options["seq"] = model.T;
  if (model.dropout > 0) options["dropout"] = model.dropout;
  TSR_ASSIGN_OR_RETURN(TrainerSettings settings, read_trainer_settings(options, 0));
  settings.step.fp8_matmuls = plan.fp8_linears;
  return training_step(forward, true, settings);
}

std::vector<std::pair<std::string, int64_t>> symbols_of(const TransformerShape& model) {
  return {{"T", model.T}};
}

// The first blocks of a stage are those computed again.
ComposedStages stages_of(const FoundStep& found, const StrategySpec& spec, const std::vector<int32_t>& like,
                         int64_t micro_batches) {
  ComposedStages stages;
  stages.shape = {spec.schedule, spec.pp, spec.virtual_stages, static_cast<int32_t>(micro_batches)};
  const int32_t after = *std::ranges::max_element(like) + 2;
  size_t next = 0;
  for (const StageBlocks& stage : found.stages) {
    std::vector<StageBlock>& blocks = stages.blocks.emplace_back();
    if (stages.blocks.size() == 1) blocks.push_back({});
    for (int64_t i = 0; i < stage.blocks; ++i) blocks.push_back({like[next++] + 1, i < stage.full ? 1 : 0});
  }
  stages.blocks.back().push_back({after, 0});
  return stages;
}

Status check_stages(const FoundStep& found) {
  for (const StageBlocks& stage : found.stages) {
    if (stage.selective > 0)
      return unsupported("attention alone is computed again, which fused attention always does");
    if (std::ranges::any_of(stage.offloaded, [](int64_t blocks) { return blocks > 0; }))
      return unsupported("activations of some blocks wait on the host");
  }
  return {};
}

}  // namespace

Result<std::vector<DeviceBytes>> compose_estimate(const ModelConfig& config, const TransformerShape& model,
                                                  const FoundStep& found, const Cluster& cluster,
                                                  int64_t global_batch) {
  TSR_ASSIGN_OR_RETURN(StrategySpec spec, strategy_of(found.plan));
  TSR_RETURN_IF_ERROR(check_stages(found));
  bool recomputes = false;
  for (const StageBlocks& stage : found.stages) recomputes = recomputes || stage.full > 0;
  TSR_ASSIGN_OR_RETURN(const Graph forward, forward_of(config, model));
  TSR_ASSIGN_OR_RETURN(FewerBlocks few, with_fewer_blocks(forward));
  TSR_ASSIGN_OR_RETURN(const Graph step, step_of(std::move(few.graph), model, found.plan));
  int64_t blocks = 0;
  for (const StageBlocks& stage : found.stages) blocks += stage.blocks;
  if (blocks != static_cast<int64_t>(few.like.size()))
    return unsupported(format("the plan has {} blocks, the model {}", blocks, few.like.size()));
  const AbsentCatalog catalog(cluster.kinds[0]);
  std::vector<StepProfile> variants;
  for (const RecomputeForm form : {RecomputeForm::kNone, RecomputeForm::kFull}) {
    if (form == RecomputeForm::kFull && !recomputes) continue;
    spec.recompute = form;
    TSR_ASSIGN_OR_RETURN(StepProfile profile,
                         profile_strategy(step, spec, global_batch, symbols_of(model), cluster, catalog));
    variants.push_back(std::move(profile));
  }
  return composed_memory(variants,
                         stages_of(found, spec, few.like, global_batch / (spec.micro_batch * spec.data())));
}

Result<std::vector<LoweredDevice>> lower_estimate(const ModelConfig& config, const TransformerShape& model,
                                                  const FoundStep& found, const Cluster& cluster,
                                                  int64_t global_batch,
                                                  const std::vector<DeviceBytes>& composed) {
  TSR_ASSIGN_OR_RETURN(const StrategySpec spec, strategy_of(found.plan));
  TSR_RETURN_IF_ERROR(check_stages(found));
  TSR_ASSIGN_OR_RETURN(Graph forward, forward_of(config, model));
  TSR_ASSIGN_OR_RETURN(const Graph step, step_of(std::move(forward), model, found.plan));
  TSR_ASSIGN_OR_RETURN(const Graph bound, step.bind_partly(symbols_of(model)));
  int64_t blocks = 0;
  for (const StageBlocks& stage : found.stages) blocks += stage.blocks;
  const std::vector<int32_t> alike(static_cast<size_t>(blocks), 0);
  const int64_t at_once = spec.micro_batch * spec.data();
  ComposedStages stages = stages_of(found, spec, alike, global_batch / at_once);
  stages.shape.micro_batches = filling_micro_batches(stages.shape);
  TSR_ASSIGN_OR_RETURN(Plan plan, staged_plan(bound, spec, stages, at_once * stages.shape.micro_batches));
  plan.symbols = symbols_of(model);
  const auto fullest = std::ranges::max_element(composed, {}, &DeviceBytes::total) - composed.begin();
  std::vector<int32_t> devices = {0, static_cast<int32_t>(fullest), found.time.slowest, spec.pp - 1};
  std::ranges::sort(devices);
  devices.erase(std::ranges::unique(devices).begin(), devices.end());
  TSR_ASSIGN_OR_RETURN(const std::vector<int64_t> arenas,
                       lowered_arenas(step, plan, AbsentCatalog(cluster.kinds[0]), devices));
  std::vector<LoweredDevice> lowered;
  for (size_t i = 0; i < devices.size(); ++i) lowered.push_back({devices[i], arenas[i]});
  return lowered;
}

int64_t lowered_passes(const FoundStep& found, int64_t global_batch) {
  const ForeignPlan& plan = found.plan;
  const int64_t micro_batches = std::max<int64_t>(1, global_batch / (plan.micro_batch * plan.data()));
  const PipelineShape shape{schedule_of(plan), plan.pp, plan.pp == 1 ? 1 : plan.virtual_stages,
                            static_cast<int32_t>(std::min<int64_t>(micro_batches, INT32_MAX))};
  int64_t most = 0;
  for (int32_t d = 0; d < plan.pp; ++d) most = std::max(most, blocks_on(found, d).blocks);
  constexpr int64_t kPlaces = 4;
  return std::min<int64_t>(plan.pp, kPlaces) * most * filling_micro_batches(shape);
}

double held_share_of(const TransformerShape& model, const FoundStep& found, const Cluster& cluster,
                     int64_t global_batch, const std::vector<int64_t>& bytes) {
  const ForeignPlan& plan = found.plan;
  const StageTimes times(model, plan, cluster);
  const int64_t micro_batches = global_batch / (plan.micro_batch * plan.data());
  double share = plan.held_share();
  for (int32_t d = 0; d < plan.pp; ++d) {
    const StageMemory memory = times.memory(blocks_on(found, d), d == 0, holds_head(plan, d),
                                            in_flight(plan, d, micro_batches), plan.virtual_stages);
    const int64_t lacks = bytes[static_cast<size_t>(d)] - memory.total();
    if (lacks <= 0 || memory.activations <= 0) continue;
    share = std::max(share, plan.held_share() *
                                (1 + static_cast<double>(lacks) / static_cast<double>(memory.activations)));
  }
  return share;
}

}  // namespace tessera
