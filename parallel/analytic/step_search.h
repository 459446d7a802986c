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
#include "parallel/analytic/step_time.h"

namespace tessera {

struct StepSearchOptions {
  int64_t global_batch = 1;
  int64_t memory_limit = 0;  // bytes a device; 0: the kind's, less what contexts and communicators hold
  ForeignPlan features;      // dtypes, attention, overlap; of the rest what is pinned
  bool pin_sequence_parallel = false;
  // Pinned decisions; absent ones are searched.
  std::optional<int32_t> tp, dp, pp, zero, virtual_stages;
  std::optional<int64_t> micro_batch;
  std::optional<Recompute> recompute;
  size_t runners_up = 5;
};

struct FoundStep {
  ForeignPlan plan;                 // recompute: kFull or kSelective when any block is, see stages
  std::vector<StageBlocks> stages;  // virtual stages
  StepTime time;
  std::vector<int64_t> memory_bytes;  // by device of the pipeline
};

struct StepSearchResult {
  FoundStep best;
  std::vector<FoundStep> runners_up;  // best first, of other (tp, dp, pp, micro-batch)
  double bound_s = 0;
  double gap = 0;  // (best - bound) / best
  int64_t configurations = 0, closed_by_bound = 0, solved = 0, too_large = 0;
};

// kOutOfMemory when nothing fits: says the smallest limit found that would work, and with what.
Result<StepSearchResult> search_step(const TransformerShape& model, const Cluster& cluster,
                                     const StepSearchOptions& options);

// In the words of --parallel: "tp=8,dp=16,pp=8:1f1b,mb=1,zero=1,recompute=full".
std::string to_text(const ForeignPlan& plan);

}  // namespace tessera
