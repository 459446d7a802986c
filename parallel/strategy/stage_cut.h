// Stages of a pipeline: a plan on one stage's devices becomes a plan on p times as many, its nodes dealt out
// to stages. Sharding inside a stage stays as it is.
//
// Forward nodes are cut between blocks ("block.3.ffn" belongs to "block.3"; layers of a graph without such
// scopes may be cut anywhere), so that the costliest stage costs least; what comes before the first block
// goes with it, what comes after the last goes with that. Backward nodes run where their forward node does,
// sums of gradients where the tensor was made, update nodes where their parameter is owned: in the first
// stage that uses it. Other stages that use it hold mirrors. Inputs are fed to every stage that reads them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/plan.h"

namespace tessera {

struct StageCut {
  int32_t devices = 1;         // p: groups of as many devices as the plan's mesh has
  int32_t virtual_stages = 1;  // v: stages of one group
  ScheduleKind schedule = ScheduleKind::k1F1B;
  std::vector<int64_t> blocks = {};  // of every stage; empty: the cut is free
  // Owner's stage of parameters by name, of another graph of the same model that was cut before (an
  // evaluation beside a training step); empty: the cut is free.
  std::map<std::string, int32_t> owners;
  // Its stages that hold parameters and state by name, the owner's first: kept for what no forward node reads (the
  // update of a step in parts).
  std::map<std::string, std::vector<int32_t>> holders;
};

// `graph`: symbols bound. `plan`: of one stage. Refuses more stages than there are blocks, naming the most.
Result<Plan> cut_stages(const Graph& graph, Plan plan, const StageCut& cut);

// The owners in `plan` of `graph`'s parameters.
std::map<std::string, int32_t> owners_of(const Graph& graph, const Plan& plan);
// Adds the stages that hold parameters and state; those of names that are there stay.
void add_holders(const Graph& graph, const Plan& plan, std::map<std::string, std::vector<int32_t>>& holders);

}  // namespace tessera
