// The space of a step's search: what may be chosen, what is pinned, and every configuration of it.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "graph/cluster.h"
#include "parallel/analytic/foreign_plan.h"

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
  bool advise = true;  // where nothing fits, look for the limit and the number of devices that would do

  // The whole space: context and expert parallelism, every schedule, uneven chunks, devices that stay idle.
  // Without it what stands above, which is what certificates tell of.
  bool wide = false;
  // And, in it: operators sharded one by one, with gathers in slices; what waits on the host. Both are turned
  // to without being asked for when nothing fits otherwise.
  bool shard = false, offload = false;
  std::optional<ForeignSchedule> schedule;
  std::optional<int32_t> cp, ep;  // with features.context
  int32_t threads = 0;            // 0: as many as there are; the result is the same for any number
  // Whether sharding by operator and offload are turned to, unasked, when nothing fits without.
  bool last_resort = true;
  // Only plans below this count: with none the best has an infinite step, and the bound is what is known.
  double most_s = INFINITY;
  int64_t most_solved = 4000;  // configurations solved at most; what stays open counts in the bound
};

template <class T>
bool allowed(const std::optional<T>& pin, T value) {
  return !pin || *pin == value;
}

// Every combination but for cuts and what is decided block by block. `coarse`: of the numbers of chunks only
// those at least twice the one before, so that deep models have hardly more than others.
std::vector<ForeignPlan> step_space(const TransformerShape& model, const Cluster& cluster,
                                    const StepSearchOptions& options, bool coarse = false);

}  // namespace tessera
