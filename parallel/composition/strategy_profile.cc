#include "parallel/composition/strategy_profile.h"

#include <algorithm>

#include "parallel/pipeline/pipeline_schedule.h"
#include "parallel/sharding/batch_cut.h"
#include "parallel/strategy/propagation.h"
#include "parallel/strategy/stage_cut.h"

namespace tessera {

namespace {

// Puts the last block and the final end in a second stage on the same devices,
// so that parameters shared by both ends are summed per stage, as in a pipeline.
Result<Plan> in_two_stages(const Graph& few, const std::vector<std::pair<std::string, int64_t>>& symbols,
                           Plan plan, bool splits) {
  std::vector<std::pair<std::string, int64_t>> values = symbols;
  values.emplace_back("B", plan.global_batch / plan.micro_batches);
  TSR_ASSIGN_OR_RETURN(const Graph bound, few.bind(values));
  StageCut cut;
  cut.devices = 1, cut.virtual_stages = 2;
  cut.schedule = splits ? ScheduleKind::kZbV : ScheduleKind::kInterleaved;
  cut.blocks = {find_blocks(few).blocks - 1, 1};
  return cut_stages(bound, std::move(plan), cut);
}

}  // namespace

Result<StepProfile> profile_strategy(const Graph& few, const StrategySpec& spec, int64_t global_batch,
                                     const std::vector<std::pair<std::string, int64_t>>& symbols,
                                     const Cluster& cluster, const KernelCatalog& catalog, bool breakdown,
                                     const SoftwareTraits& traits) {
  TSR_ASSIGN_OR_RETURN(const Graph bound, few.bind_partly(symbols));
  const bool may_cut = spec.pp > 1 && cut_batch(bound).ok();
  TSR_ASSIGN_OR_RETURN(const int32_t count, micro_batches_of(spec, global_batch, may_cut));
  const bool updates_last = spec.pp > 1;
  // The first, a steady one, and the last.
  const int32_t profiled = count == 1 ? 1 : updates_last ? 3 : std::min(count, 3);
  const PipelineShape shape{.kind = spec.schedule, .devices = spec.pp, .virtual_stages = spec.virtual_stages, .micro_batches = count};
  StrategySpec inside = spec;
  inside.pp = 1, inside.schedule = ScheduleKind::kNone, inside.virtual_stages = 1;
  if (count > 1 || spec.micro_batch > 0) inside.micro_batch = global_batch / count / spec.data();
  TSR_ASSIGN_OR_RETURN(Plan plan, apply_strategy(bound, inside, global_batch / count * profiled));
  if (updates_last) {
    TSR_ASSIGN_OR_RETURN(plan, in_two_stages(few, symbols, std::move(plan), shape.splits_backward()));
  }
  plan.symbols = symbols;
  TSR_ASSIGN_OR_RETURN(const EntryLayout layout, make_layout({"step", &few, &plan}));
  TSR_ASSIGN_OR_RETURN(const RankProgram rank, lower_place(layout, catalog, 0, false));
  return profile_step(layout, rank, cluster, shape.splits_backward(), updates_last, breakdown, traits);
}

}  // namespace tessera
