#include "parallel/analytic/block_ways.h"

namespace tessera {

StageBlocks blocks_of(int64_t count, const BlockWay& way) {
  StageBlocks blocks{count, way.recompute == Recompute::kFull ? count : 0,
                     way.recompute == Recompute::kSelective ? count : 0};
  if (way.quarters > 0) blocks.offloaded[static_cast<size_t>(way.quarters - 1)] = count;
  return blocks;
}

double seconds_of(const StagePasses& passes) { return passes.forward_s + passes.backward_s; }

std::vector<Recompute> recomputations(const StepSearchOptions& options, const ForeignPlan& plan) {
  std::vector<Recompute> all;
  for (const Recompute way : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
    if (allowed(options.recompute, way) && (way != Recompute::kSelective || !plan.fused_attention))
      all.push_back(way);
  return all.empty() ? std::vector<Recompute>{Recompute::kNone} : all;
}

}  // namespace tessera
