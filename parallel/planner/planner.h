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

// Seconds that a step of each of the plans takes, by running it.
using MeasurePlans = std::function<Result<std::vector<double>>(std::span<const Plan* const>)>;

// What was made of a question's strategies, for the same question under other limits (plan_attempt.h).
class AttemptCache;

// What strategies were found to hold of their bounds, on other numbers of devices (min_memory_plan.h).
class HeldFactors;

// SearchEffort: instructions that searches may still lower, on all ranks together. Counted, so that what they
// find does not depend on the machine's speed.
struct SearchEffort {
  int64_t left = 0;
};

// A graph with its plan.
struct PlannedGraph {
  const Graph* graph = nullptr;
  const Plan* plan = nullptr;
};

struct PlanOptions {
  int64_t global_batch = 1;                              // sequences per step
  std::vector<std::pair<std::string, int64_t>> symbols;  // every symbol but "B"
  std::string parallel;        // pins in the words of --parallel; empty leaves all to the planner
  PlanPins pins;               // single decisions beside them
  int64_t memory_limit = 0;    // bytes per device; 0: the device's own
  const Plan* like = nullptr;  // keep this plan's mesh and parameter placements (eval beside train_step),
  const Graph* like_graph = nullptr;  // whose tensors are matched by name
  // With both, so many of the plans predicted fastest, of as many kinds of parallelism as come near, are
  // measured, and the fastest of those is the plan; else the one predicted fastest is.
  int32_t finalists = 1;
  MeasurePlans measure;
  bool advise = true;              // where nothing fits, look for the number of devices that would do
  int64_t* least_limit = nullptr;  // out: where nothing fits, the smallest limit that works
  std::optional<Plan>* smallest = nullptr;  // out: the plan that does, of devices of one kind
  bool* is_excluded = nullptr;     // out: where nothing fits, whether lower bounds alone tell so
  AttemptCache* known = nullptr;  // kept from one limit to the next: nothing else may change between them
  // Whether anything fits is the question: the first plan found will do, unproved, and where none is, what
  // would do is not looked for.
  bool any_that_fits = false;
  HeldFactors* factors = nullptr;  // kept from one number of devices to the next
  SearchEffort* effort = nullptr;  // that the search takes from, and ends with; null: all that it wants
  // Further entries beside `like`, for state that it has not.
  std::vector<PlannedGraph> also_like;
};

struct Candidate {
  std::string strategy;
  double step_time_s = 0;
  double measured_s = 0;    // 0: it was not run
  int64_t arena_bytes = 0;  // largest over devices
  std::string rejected;     // why not; empty for the chosen one and for slower ones that fit
};

// A configuration that was not looked at, because it cannot be faster than the plan.
struct ClosedStrategy {
  std::string strategy;
  double bound_s = 0;  // its step takes at least that
};

// How the space was searched. Of a tree (parallel/planner/plan_space.h) only the nodes come up whose parents
// do not fit; what lies below one that fits, or that its bound closes, is slower than it.
struct PlanSearch {
  int64_t configurations = 0;          // that came up
  int64_t solved = 0;                  // lowered and simulated
  int64_t too_large = 0;               // of those, or by their parameters and optimizer state alone
  int64_t refused = 0;                 // the model does not admit them
  int64_t closed_by_bound = 0;         // never lowered: their bound reaches the plan's time
  int64_t open = 0;                    // left over when the number of lowerings ran out
  double bound_s = 0;                  // no plan of the space is faster, under these prices
  double gap = -1;                     // (plan - bound) / plan; -1 when the prices break the bounds' property
  std::vector<ClosedStrategy> closed;  // the closest first; at most 64
};

struct PlanResult {
  Plan plan;
  std::vector<Candidate> candidates;  // best first, then the rejected
  PlanSearch search;
};

// A lower bound of the bytes of a device, whatever the plan: found without making one. 0: none is known.
Result<int64_t> least_bytes_of_plans(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                                     const PlanOptions& options);

// Whether a plan fits, from lower bounds and from the sizes of a few micro-batches.
enum class Fit : uint8_t { kNo, kLikely, kUnknown };
struct LikelyFit {
  Fit fit = Fit::kUnknown;  // unknown: for want of bounds, or the effort is spent
  std::optional<Plan> plan;  // a likely one
  int64_t instructions = 0;  // of its program on all ranks, about
};
Result<LikelyFit> likely_fit(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                             const PlanOptions& options);

// kOutOfMemory when nothing fits: says the smallest limit that would work, with which strategy, the tensors
// and instruction at that peak, and the smallest number of devices that would do. Devices of several kinds:
// parallel/planner/heterogeneous_plan.h.
Result<PlanResult> make_plan(const Graph& graph, const Cluster& cluster, const KernelCatalog& catalog,
                             const PlanOptions& options);

}  // namespace tessera
