// WorkspaceFloor: lower bound of a device's bytes while a kernel of
// the strategy's step runs: one kernel's operands and results, with
// persistent bytes. Independent of the plan and of all memory savings.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "graph/graph.h"
#include "parallel/planner/plan_space.h"

namespace tessera {

class WorkspaceFloor {
 public:
  // `graph`: symbols bound except B. Both must outlive this.
  WorkspaceFloor(const Graph& graph, const SpaceOfGraph& space);

  // Bytes of the fullest rank of any plan of the strategy, except single pins (PlanPins).
  int64_t bytes(const StrategySpec& spec);
  // The part, without a pipeline, that the step is fed.
  int64_t input_bytes(const StrategySpec& spec);

 private:
  // Largest: maxima over all kernels, unsplit.
  struct Largest {
    int64_t other = 0;    // never sliced
    int64_t product = 0;  // other weights
    int64_t weighted = 0;
    int64_t inputs = 0;  // of the step, in sequence
  };
  struct Cut {
    int64_t count = 1, batch = 1;  // micro-batches per rank; sequences of each
  };
  Cut cut_of(const StrategySpec& spec) const;
  const Largest& largest(int64_t batch);

  const Graph& graph_;
  const SpaceOfGraph& space_;
  std::map<int64_t, Largest> largest_;  // by sequences of a micro-batch
};

}  // namespace tessera
