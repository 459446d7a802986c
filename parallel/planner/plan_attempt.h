// PlanAttempt: one configuration of the search made real: planned, lowered, simulated and sized, or refused
// with the reason.
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
  std::vector<int64_t> limited_bytes;  // by device: what the limit bounds
  int64_t collectives = 0;
  bool lowered = false;
  bool exact = false;  // all ranks lowered and simulated
  int64_t limit = 0;   // that its set of activations was made to fit
  int32_t lowerings = 0;
  int64_t instructions = 0;  // of its program, all ranks together
  Status failure;
  bool fits() const { return candidate.rejected.empty(); }
};

// By the words of their strategies; sets of activations, which limits decide, are not kept.
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

// Those that fit, fastest first; then those that were too large, smallest first; then those that cannot be
// made.
bool is_better(const PlanAttempt& a, const PlanAttempt& b);

// Makes attempts, all for one question. What it is given must outlive it.
class PlanAttempts {
 public:
  // `bound`: `graph` with all symbols bound but B; `limit`: bytes of a device.
  PlanAttempts(const Graph& graph, const Graph& bound, const Cluster& cluster, const KernelCatalog& catalog,
               const PlanOptions& options, int64_t limit)
      : graph_(graph),
        bound_graph_(bound),
        cluster_(cluster),
        catalog_(catalog),
        options_(options),
        limit_(limit) {}

  // Of ranks alike one is lowered, and the others are turned copies.
  PlanAttempt make(const SpaceNode& node) const { return make(node, limit_, INFINITY); }
  // `limit`: what a set of activations to recompute is made to fit; `beat_s`: a step that takes as long is of
  // no use.
  PlanAttempt make(const SpaceNode& node, int64_t limit, double beat_s) const;
  // Of a step of another batch.
  PlanAttempt make_of_batch(const SpaceNode& node, int64_t global_batch) const;
  // Its memory alone, of a step of another batch: without a time, and not for `is_better`.
  PlanAttempt size_of_batch(const SpaceNode& node, int64_t global_batch) const;
  // Its plan, not lowered.
  Result<Plan> plan_of(const SpaceNode& node) const;
  // All its ranks, as they will run: another than the first may need a few buffers more (zeros beside an
  // addend), so that it may no longer fit.
  Status lower_whole(PlanAttempt& it) const;

 private:
  PlanAttempt planned(const SpaceNode& node) const;
  PlanAttempt make_kept(const SpaceNode& node) const;
  void judge(PlanAttempt& it) const;
  PlanAttempt with_set(PlanAttempt base, double beat_s) const;
  PlanAttempt with_moves(PlanAttempt base, double beat_s) const;
  EntrySpec entry_of(const PlanAttempt& it) const;
  Status lower_ranks_as_representatives(PlanAttempt& it) const;
  Status take(PlanAttempt& it, const Program& program) const;
  void take_memory(PlanAttempt& it, const Program& program) const;
  std::vector<PlannedGraph> followed() const;  // with options_.like
  std::map<std::string, ShardingSpec> stored_like() const;

  const Graph& graph_;
  const Graph& bound_graph_;
  const Cluster& cluster_;
  const KernelCatalog& catalog_;
  const PlanOptions& options_;
  const int64_t limit_;
};

}  // namespace tessera
