#include "parallel/composition/staged_plan.h"

#include <algorithm>

#include "parallel/lowering/entry_layout.h"
#include "parallel/strategy/propagation.h"

namespace tessera {

Result<Plan> staged_plan(const Graph& step, const StrategySpec& spec, const ComposedStages& stages,
                         int64_t global_batch) {
  PropagationOptions options;
  options.spec = spec;
  options.spec.recompute = RecomputeForm::kNone;
  options.global_batch = global_batch;
  std::vector<bool> repeats;  // by block
  const int64_t ends = 2;     // the model's ends, which are no blocks
  int64_t total = 0;
  for (const std::vector<StageBlock>& blocks : stages.blocks) {
    options.stage_blocks.push_back(static_cast<int64_t>(blocks.size()));
    total += options.stage_blocks.back();
    for (const StageBlock& it : blocks) {
      repeats.push_back(it.variant == 1);
      if (it.variant == 1) options.spec.recompute = RecomputeForm::kFull;
    }
  }
  --options.stage_blocks.front(), --options.stage_blocks.back();
  const BlockMap map = find_blocks(step);
  if (total - ends != map.blocks)
    return Status(StatusCode::kInvalidArgument, "the stages have other numbers of blocks than the model");
  TSR_ASSIGN_OR_RETURN(Plan plan, propagate(step, options));
  std::erase_if(plan.recompute, [&](TensorId id) {
    const NodeId producer = step.tensor(id).producer;
    return producer == kNoNode || !repeats[static_cast<size_t>(map.of_node[index(producer)])];
  });
  return plan;
}

Result<std::vector<int64_t>> lowered_arenas(const Graph& step, const Plan& plan, const KernelCatalog& catalog,
                                            std::span<const int32_t> places) {
  TSR_ASSIGN_OR_RETURN(const EntryLayout layout, make_layout({"step", &step, &plan}));
  std::vector<int64_t> arenas;
  for (const int32_t place : places) {
    TSR_ASSIGN_OR_RETURN(const RankProgram rank, lower_place(layout, catalog, static_cast<size_t>(place)));
    arenas.push_back(rank.arena_bytes);
  }
  return arenas;
}

}  // namespace tessera
