// ComposedSpace: the training plans searched for many devices (composed_search.h). Plans that
// split a micro-batch equally form a group, whose blocks are profiled once to bound all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/planner/plan_space.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

// PlanGroup: the split of a micro-batch: tensor form, context, experts, size; one replica, one stage.
struct PlanGroup {
  StrategySpec spec;
  int32_t parent =
      -1;  // the group with the same sequences in fewer parts, which takes no more device time; -1: none
  int32_t smaller = -1;  // the group with a smaller micro-batch, which needs less memory; -1: none
};

class ComposedSpace {
 public:
  // `graph`: limits of the whole model. Unpinned options are free, except owt, keep, chunks and offload, which stay unset.
  ComposedSpace(const SpaceOfGraph& graph, const StrategyPins& pins, int64_t devices);

  // Parents and smaller ones precede.
  std::vector<PlanGroup> groups() const;
  // All plans of a group: stages, replicas, ZeRO, schedules; recompute=auto unless pinned.
  std::vector<StrategySpec> plans_of(const StrategySpec& group) const;

 private:
  std::vector<int64_t> micro_batches() const;
  std::vector<StrategySpec> splits() const;
  void add_schedules(StrategySpec spec, std::vector<StrategySpec>& plans) const;

  const SpaceOfGraph& graph_;
  const StrategyPins& pins_;
  const int64_t devices_;
};

}  // namespace tessera
