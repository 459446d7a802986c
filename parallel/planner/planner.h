// make_plan: chooses the plan. Its inputs are (Graph, Cluster, KernelCatalog, PlanOptions) and nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/graph.h"
#include "graph/kernel_catalog.h"
#include "graph/plan.h"
#include "graph/plan_pins.h"

namespace tessera {

// Step seconds of each plan, measured by running it.
using MeasurePlans = std::function<Result<std::vector<double>>(std::span<const Plan* const>)>;

// Attempts of one search, reusable under other limits (plan_attempt.h).
class AttemptCache;

// Observed factors over memory bounds, reusable for other device counts (min_memory_plan.h).
class HeldFactors;

// SearchEffort: budget of instructions to lower, over all ranks.
// Counted, so that results do not depend on the machine's speed.
struct SearchEffort {
  int64_t left = 0;
};

// PlannedGraph: a graph with its plan.
struct PlannedGraph {
  const Graph* graph = nullptr;
  const Plan* plan = nullptr;
};

struct PlanOptions {
  int64_t global_batch = 1;                              // sequences per step
  std::vector<std::pair<std::string, int64_t>> symbols;  // all except "B"
  std::string parallel;        // pins, as in --parallel; empty: everything is open
  PlanPins pins;               // single decisions in addition
  int64_t memory_limit = 0;    // bytes per device; 0: the device's own
  const Plan* like = nullptr;  // keep this plan's mesh and parameter placements (eval with train_step),
  const Graph* like_graph = nullptr;  // whose tensors are matched by name
  // With both this and `measure`: that many of the best predicted plans, of as many strategy
  // families as come near, are measured, and the fastest wins; else the best predicted one.
  int32_t finalists = 1;
  MeasurePlans measure;
  bool advise = true;             // if nothing fits, find the sufficient device count
  AttemptCache* known = nullptr;  // reused between limits; nothing else may change
  // Feasibility only: return the first plan that
  // fits, without a bound; no advice if none does.
  bool any_that_fits = false;
  HeldFactors* factors = nullptr;  // reused between device counts
  SearchEffort* effort = nullptr;  // budget of the search; null: unlimited
  // Entries in addition to `like`, for state that it lacks.
  std::vector<PlannedGraph> also_like;
};

struct Candidate {
  std::string strategy;
  double step_time_s = 0;
  double measured_s = 0;    // 0: not run
  int64_t arena_bytes = 0;  // largest over devices
  std::string rejected;     // reason; empty for the chosen one and slower ones that fit
};

// ClosedStrategy: a configuration excluded since it cannot beat the plan.
struct ClosedStrategy {
  std::string strategy;
  double bound_s = 0;  // lower bound of its step
};

// PlanSearch: statistics of the search. In the tree (parallel/planner/plan_space.h) only children
// of nodes that do not fit are considered; others are slower than a node that fits or is closed.
struct PlanSearch {
  int64_t configurations = 0;          // considered
  int64_t solved = 0;                  // lowered and simulated
  int64_t too_large = 0;               // of those, or by parameters and optimizer state alone
  int64_t refused = 0;                 // inadmissible for the model
  int64_t closed_by_bound = 0;         // never lowered: their bound reaches the plan's time
  int64_t open = 0;                    // left when the lowering budget ran out
  double bound_s = 0;                  // no plan of the space is faster, under these prices
  double gap = -1;                     // (plan - bound) / plan; -1: the prices violate the bounds' property
  std::vector<ClosedStrategy> closed;  // closest first; at most 64
};

struct PlanResult {
  Plan plan;
  std::vector<Candidate> candidates;  // best first, then the rejected
  PlanSearch search;
};

// PlanRefusal: what is known where nothing fits.
struct PlanRefusal {
  int64_t least_limit = 0;       // the smallest sufficient limit found
  std::optional<Plan> smallest;  // its plan, for devices of one kind
  bool is_excluded = false;      // lower bounds alone prove that nothing fits
};

// Lower bound of the bytes per device of any plan, without making one. 0: unknown.
Result<int64_t> least_bytes_of_plans(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                                     const PlanOptions& options);

// Fit: whether a plan fits, by lower bounds and the sizes of a few micro-batches.
enum class Fit : uint8_t { kNo, kLikely, kUnknown };
struct LikelyFit {
  Fit fit = Fit::kUnknown;  // unknown: no bound, or the effort is spent
  std::optional<Plan> plan;  // a likely plan
  int64_t instructions = 0;  // approximate, of its program on all ranks
};
Result<LikelyFit> likely_fit(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                             const PlanOptions& options);

// kOutOfMemory if nothing fits: names the smallest sufficient limit and its
// strategy, the tensors and instruction at the peak, and the smallest sufficient
// device count. Several kinds of devices: parallel/planner/heterogeneous_plan.h.
Result<PlanResult> make_plan(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                             const PlanOptions& options, PlanRefusal* refusal = nullptr);

}  // namespace tessera
