// The explanation of a step that was priced or searched for hardware that is absent: the parts of its price,
// what the fullest stage holds, what its neighbours would take.
#pragma once

#include <cstdint>

#include "graph/explanation.h"
#include "parallel/analytic/step_search.h"

namespace tessera {

struct ExplainStepOptions {
  int64_t global_batch = 1;
  int64_t memory_limit = 0;                  // bytes a device; 0: the kind's
  const StepSearchResult* search = nullptr;  // where `found` is its best
  bool timeline = true;                      // and the memory curve
  size_t most_spans = 60'000;
  size_t most_points = 2'000;
};

// Time adds up to found.time.step_s, memory to the largest of found.memory_bytes. Runners-up are the
// search's, then the plan with one decision changed: what that loses, or by how much it does not fit.
Result<Explanation> explain_step(const TransformerShape& model, const Cluster& cluster,
                                 const FoundStep& found, const ExplainStepOptions& options);

// What a plan that is given rather than searched comes to: the even split, with its recomputation for every
// block.
Result<FoundStep> price_step(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster,
                             int64_t global_batch);

}  // namespace tessera
