// The space of a step's search: what may be chosen, what is pinned, and every configuration of it.
#pragma once

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
};

template <class T>
bool allowed(const std::optional<T>& pin, T value) {
  return !pin || *pin == value;
}

// Every combination but for cuts and what is decided block by block.
std::vector<ForeignPlan> step_space(const TransformerShape& model, const Cluster& cluster,
                                    const StepSearchOptions& options);

}  // namespace tessera
