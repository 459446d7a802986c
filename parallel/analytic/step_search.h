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
#include <vector>

#include "graph/base/result.h"
#include "parallel/analytic/step_solver.h"
#include "parallel/analytic/step_space.h"

namespace tessera {

// How a configuration was done with; a certificate (analytic/step_certificate.h) tells it of every one.
enum class ClosedBy : uint8_t { kBound, kSolved, kTooLarge };

struct ClosedConfiguration {
  ForeignPlan plan;  // recomputation is decided block by block, and is not in it
  ClosedBy by = ClosedBy::kBound;
  double bound_s = 0;  // no plan of it is faster
  double step_s = 0;   // kSolved: the fastest found
};

struct StepSearchResult {
  FoundStep best;
  std::vector<FoundStep> runners_up;  // best first, of other (tp, dp, pp, micro-batch)
  double bound_s = 0;
  double gap = 0;  // (best - bound) / best
  int64_t configurations = 0, closed_by_bound = 0, solved = 0, too_large = 0;
  std::vector<ClosedConfiguration> closed;  // all of them, by bound before anything was solved
  // Of the whole space: those solved, each with the best step known when it was (as step_s).
  std::vector<ClosedConfiguration> open;
  bool last_resort = false;  // options.shard and offload were turned to
};

// kOutOfMemory when nothing fits: says the smallest limit found that would work, and with what.
Result<StepSearchResult> search_step(const TransformerShape& model, const Cluster& cluster,
                                     const StepSearchOptions& options);

}  // namespace tessera
