// ComposedSpace: the training plans of many devices that a search over compositions looks at (composed_search.h). Plans that split a
// micro-batch alike are one group, whose blocks are profiled once to bound all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/planner/plan_space.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

// How a micro-batch is split: tensor form, context, experts and its size; one replica of one stage.
struct PlanGroup {
  StrategySpec spec;
  int32_t parent =
      -1;  // splits as many sequences in fewer parts, so that its sequences take no more device time; -1: none
  int32_t smaller = -1;  // the same with a smaller micro-batch, which holds less; -1: none
};

class ComposedSpace {
 public:
  // `graph`: what the whole model allows. What pins leave open is free, except owt, keep, chunks and offload, which stay as they are.
  ComposedSpace(const SpaceOfGraph& graph, const StrategyPins& pins, int64_t devices);

  // Parents and smaller ones first.
  std::vector<PlanGroup> groups() const;
  // All plans of a group: stages, replicas, ZeRO, schedules; recompute=auto where it is not pinned.
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
