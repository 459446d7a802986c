// Pipeline stages: extends a plan of one stage's devices to p times as
// many, and assigns nodes to stages. Sharding within a stage is unchanged.
//
// Forward nodes are cut between blocks ("block.3.ffn" belongs to "block.3"; layers without
// such scopes may be cut anywhere), minimizing the costliest stage; nodes before the first
// block join it, nodes after the last join that. Backward nodes run with their forward node,
// sums of gradients with the tensor's producer, update nodes with their parameter's owner: the
// first stage that uses it. Other users hold mirrors. Inputs are fed to every reading stage.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/plan.h"

namespace tessera {

struct StageCut {
  int32_t devices = 1;         // p: groups of the plan's mesh size
  int32_t virtual_stages = 1;  // v: stages per group
  ScheduleKind schedule = ScheduleKind::k1F1B;
  std::vector<int64_t> blocks = {};  // per stage; empty: free cut
  // Owner stages of parameters by name, from another graph of the same model
  // that was cut before (an evaluation with a training step); empty: free cut.
  std::map<std::string, int32_t> owners;
  // Its stages that hold parameters and state by name, owner first: kept
  // for those without a forward reader (the update of a partial step).
  std::map<std::string, std::vector<int32_t>> holders;
};

// `graph`: symbols bound. `plan`: of one stage. Refuses more stages than blocks, naming the maximum.
Result<Plan> cut_stages(const Graph& graph, Plan plan, const StageCut& cut);

// Owner stages of `graph`'s parameters in `plan`.
std::map<std::string, int32_t> owners_of(const Graph& graph, const Plan& plan);
// Adds the stages that hold parameters and state; existing names are kept.
void add_holders(const Graph& graph, const Plan& plan, std::map<std::string, std::vector<int32_t>>& holders);

}  // namespace tessera
