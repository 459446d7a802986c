// The fastest training step of a transformer on a cluster that need not be present: over the mesh (tp, dp,
// pp), micro-batch, schedule, sequence parallelism, ZeRO stage, uneven cuts, and how many blocks of each
// stage are recomputed.
//
// Configurations are ordered by a closed-form lower bound; those whose bound reaches the best step found are
// closed by it. The others are solved: stage contents by repeated blocks within the memory limit, cuts under
// a lower bound of the schedule's time, and the result replayed. So `bound_s` is proved: no plan of this
// space is predicted faster.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "parallel/analytic/mixed_time.h"
#include "parallel/analytic/step_solver.h"
#include "parallel/analytic/step_space.h"

namespace tessera {

struct SolvedConfiguration {
  ForeignPlan plan;    // recomputation is decided block by block, and is not in it
  double bound_s = 0;  // no plan of it is faster
  double step_s = 0;   // the best step known when it was solved
};

// Of a cluster of several kinds: some of them, planned as a cluster of their own.
struct KindChoice {
  std::string used, idle;  // "8 h100", "8 a100-80gb"; of the best plan less may be used
  double step_s = 0;       // INFINITY where nothing fits, or nothing that is faster than the best
  double bound_s = 0;      // no plan of it is faster; INFINITY where nothing fits
};

struct StepSearchResult {
  FoundStep best;
  std::vector<FoundStep> runners_up;  // best first, of other (tp, dp, pp, micro-batch)
  double bound_s = 0;
  double gap = 0;  // (best - bound) / best
  int64_t configurations = 0, closed_by_bound = 0, solved = 0, too_large = 0;
  std::vector<SolvedConfiguration> open;  // of the search with options.wide: those solved
  bool cut_off = false;      // options.most_solved were: what was still open counts in the bound alone
  bool last_resort = false;  // options.shard and offload were turned to
  // Of a cluster of several kinds: all choices among them, that of `best` first, and the cluster of one kind
  // that it is planned and priced on (analytic/cluster_parts). What stands above but for bound and gap is of
  // this one.
  std::vector<KindChoice> kinds;
  std::optional<Cluster> part;
  // Of a pipeline over several kinds (analytic/mixed_search): where its stages lie; `part` is then the kind
  // of the stage that holds most.
  std::optional<StageKinds> stage_kinds;
};

// kOutOfMemory when nothing fits: says the smallest limit found that would work, and with what. A cluster of
// several kinds is planned as analytic/kinds_search says.
Result<StepSearchResult> search_step(const TransformerShape& model, const Cluster& cluster,
                                     const StepSearchOptions& options);

}  // namespace tessera
