// WorkspaceFloor: a lower bound of what a device holds while a kernel of a strategy's step runs: the operands
// and results of one kernel, with what stays between steps. It needs no plan, and no saving of memory lowers
// it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "graph/graph.h"
#include "parallel/planner/plan_space.h"

namespace tessera {

class WorkspaceFloor {
 public:
  // `graph`: symbols bound but for B. Both must outlive this.
  WorkspaceFloor(const Graph& graph, const SpaceOfGraph& space);

  // Bytes of the fullest rank of any plan of the strategy, single decisions apart (PlanPins).
  int64_t bytes(const StrategySpec& spec);
  // Of which, without a pipeline: what the step is given.
  int64_t input_bytes(const StrategySpec& spec);

 private:
  // Of one kernel, whole: the largest over all kernels.
  struct Largest {
    int64_t other = 0;    // that are never cut in slices
    int64_t product = 0;  // of weights, but for these
    int64_t weighted = 0;
    int64_t inputs = 0;  // of the step, one after the other
  };
  struct Cut {
    int64_t count = 1, batch = 1;  // micro-batches of a rank; sequences of each
  };
  Cut cut_of(const StrategySpec& spec) const;
  const Largest& largest(int64_t batch);

  const Graph& graph_;
  const SpaceOfGraph& space_;
  std::map<int64_t, Largest> largest_;  // by sequences of a micro-batch
};

}  // namespace tessera
