// PlanBounds: what a strategy takes at least, found without making its plan. The graph's own kernels are
// priced once for every batch that a rank may get; a strategy then is a division.
//
// It rests on one property of prices: parts of an operation cost no less, summed, than the whole. The planner
// holds every simulated step against its bound and scales all bounds down where a price breaks it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "graph/cluster.h"
#include "graph/graph.h"
#include "graph/kernel_catalog.h"
#include "graph/program.h"
#include "parallel/plan_space.h"

namespace tessera {

class PlanBounds {
 public:
  // `graph`: symbols bound but for B. All four must outlive this.
  PlanBounds(const Graph& graph, const SpaceOfGraph& space, const Cluster& cluster,
             const KernelCatalog& catalog);

  // Of one step: the work of one rank in a row; and where devices share cores, the work of all of them.
  double seconds(const StrategySpec& spec);
  // Device memory of the fullest rank: parameters, optimizer state.
  int64_t bytes(const StrategySpec& spec) const;

 private:
  // Of kernels: in a row with the machine to oneself, and as a share of the whole machine's time.
  struct Work {
    double alone_s = 0, share_s = 0;
  };
  struct Phases {
    Work passes, update;  // forward and backward; update
  };
  const Phases& work_of_batch(int64_t batch);
  double reduction_seconds(int32_t members, int32_t parts, bool spread);

  const Graph& graph_;
  const SpaceOfGraph& space_;
  const Cluster& cluster_;
  const KernelCatalog& catalog_;
  std::map<int64_t, Phases> works_;
  std::map<std::vector<int32_t>, double> reductions_;  // by members, parts, spread
  std::vector<int64_t> gradient_bytes_;                // of every trained parameter
  int64_t parameter_bytes_ = 0, state_bytes_ = 0;
};

}  // namespace tessera
