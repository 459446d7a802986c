// The search of training plans that are composed rather than lowered whole (composed_plan.h). Best first: groups of plans and plans come up
// by their bounds (composed_bound.h), until no bound is below the fastest plan that fits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "parallel/planner/composed_plan.h"
#include "parallel/planner/plan_space.h"
#include "parallel/planner/planner.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

struct ComposedSearchOptions {
  std::string parallel;      // words of --parallel that every plan keeps
  int64_t global_batch = 1;  // sequences of a step
  int64_t tokens = 0;        // of a sequence
  int64_t memory_limit = 0;  // bytes of a device that a plan may fill
  double within = 0;  // of plans that are slower by at most that share, the one with least tensor parallelism
  // The limit of a device under which so many bytes of a plan fit; none: they are the limit.
  std::function<int64_t(int64_t)> limit_for = {};
};

// A plan that was composed.
struct ComposedEntry {
  std::string strategy;
  double seconds = 0;  // of its step
  int64_t bytes = 0;   // of its fullest device
};

struct ComposedSearchResult {
  ComposedPlan plan;                   // chosen
  ComposedPlan fastest;                // another one only with `within`
  PlanSearch search;                   // its bound: no plan of the space is faster
  std::vector<ComposedEntry> entries;  // the fastest first, then what does not fit
};

// What of the whole model decides which plans are looked at.
SpaceOfGraph composed_graph(const ComposedModel& model, const Cluster& cluster,
                            const ComposedSearchOptions& options);

// kOutOfMemory where nothing fits, with the smallest limit that was found to work. kInvalidArgument where no plan has those words.
Result<ComposedSearchResult> search_composed(const ComposedModel& model, const Cluster& cluster,
                                             const KernelCatalog& catalog,
                                             const ComposedSearchOptions& options);

}  // namespace tessera
