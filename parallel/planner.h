// make_plan: chooses the plan. Its inputs are (Graph, Cluster, KernelCatalog, PlanOptions) and nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/graph.h"
#include "graph/kernel_catalog.h"
#include "graph/plan.h"

namespace tessera {

struct PlanOptions {
  int64_t global_batch = 1;                              // sequences per step
  std::vector<std::pair<std::string, int64_t>> symbols;  // every symbol but "B"
  std::string parallel;        // pins in the words of --parallel; empty leaves all to the planner
  int64_t memory_limit = 0;    // bytes per device; 0: the device's own
  const Plan* like = nullptr;  // keep this plan's mesh and parameter placements (eval beside train_step),
  const Graph* like_graph = nullptr;  // whose tensors are matched by name
};

struct Candidate {
  std::string strategy;
  double step_time_s = 0;
  int64_t arena_bytes = 0;  // largest over devices
  std::string rejected;     // why not; empty for the chosen one and for slower ones that fit
};

struct PlanResult {
  Plan plan;
  std::vector<Candidate> candidates;  // best first, then the rejected
};

// kOutOfMemory when nothing fits: says the smallest limit that would work, with which strategy, and the
// tensors and instruction at that peak.
Result<PlanResult> make_plan(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                             const PlanOptions& options);

}  // namespace tessera
