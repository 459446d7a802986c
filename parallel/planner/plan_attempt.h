// PlanAttempt: one configuration of the search, planned,
// lowered, simulated and sized, or refused with a reason.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/graph.h"
#include "graph/kernel_catalog.h"
#include "graph/plan.h"
#include "graph/program.h"
#include "parallel/lowering/lower.h"
#include "parallel/planner/plan_space.h"
#include "parallel/planner/planner.h"

namespace tessera {

struct PlanAttempt {
  SpaceNode node;
  Candidate candidate;
  Plan plan;
  std::string peak;
  int32_t fullest = 0;  // rank
  std::vector<int64_t> limited_bytes;  // by device: bytes under the limit
  int64_t collectives = 0;
  bool lowered = false;
  bool exact = false;  // all ranks are lowered and simulated
  int64_t limit = 0;   // the limit of its recompute set
  int32_t lowerings = 0;
  int64_t instructions = 0;  // of its program, over all ranks
  Status failure;
  bool fits() const { return candidate.rejected.empty(); }
};

// AttemptCache: attempts by strategy text; recompute sets, which depend on limits, are not cached.
class AttemptCache {
 public:
  const PlanAttempt* find(const std::string& words) const {
    const auto at = attempts_.find(words);
    return at == attempts_.end() ? nullptr : &at->second;
  }
  void keep(const std::string& words, const PlanAttempt& it) { attempts_.try_emplace(words, it); }

 private:
  std::map<std::string, PlanAttempt> attempts_;
};

// Order: those that fit, fastest first; those too
// large, smallest first; those that cannot be made.
bool is_better(const PlanAttempt& a, const PlanAttempt& b);

// PlanAttempts: makes attempts for one search. Its arguments must outlive it.
class PlanAttempts {
 public:
  // `bound`: `graph` with all symbols bound except B; `limit`: bytes per device.
  PlanAttempts(const Graph& graph, const Graph& bound, const Cluster& cluster, const KernelCatalog& catalog,
               const PlanOptions& options, int64_t limit)
      : graph_(graph),
        bound_graph_(bound),
        cluster_(cluster),
        catalog_(catalog),
        options_(options),
        limit_(limit) {}

  // Lowers one of several equal ranks, and copies it for the others.
  PlanAttempt make(const SpaceNode& node) const { return make(node, limit_, INFINITY); }
  // `limit`: for the recompute set;
  // `beat_s`: a step this slow is useless.
  PlanAttempt make(const SpaceNode& node, int64_t limit, double beat_s) const;
  // Only its memory, for another batch size: without a time, and not for `is_better`.
  PlanAttempt size_of_batch(const SpaceNode& node, int64_t global_batch) const;
  // The plan without lowering.
  Result<Plan> plan_of(const SpaceNode& node) const;
  // Lowers all its ranks as they will run: others than the first may need
  // a few buffers more (zeros next to an addend), so it may no longer fit.
  Status lower_whole(PlanAttempt& it) const;

 private:
  PlanAttempt planned(const SpaceNode& node) const;
  PlanAttempt make_kept(const SpaceNode& node) const;
  void judge(PlanAttempt& it) const;
  PlanAttempt with_set(PlanAttempt base, double beat_s) const;
  PlanAttempt with_moves(PlanAttempt base, double beat_s) const;
  EntrySpec entry_of(const PlanAttempt& it) const;
  Result<Program> lower_ranks_as_representatives(PlanAttempt& it) const;
  Status take(PlanAttempt& it, const Program& program) const;
  void take_memory(PlanAttempt& it, const Program& program) const;
  std::vector<PlannedGraph> followed() const;  // for options_.like
  std::map<std::string, ShardingSpec> stored_like() const;

  const Graph& graph_;
  const Graph& bound_graph_;
  const Cluster& cluster_;
  const KernelCatalog& catalog_;
  const PlanOptions& options_;
  const int64_t limit_;
};

}  // namespace tessera
