// Explanation of a training plan for an absent cluster, from compositions of a few lowered blocks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/explanation.h"
#include "parallel/composition/composed_memory.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

struct ComposedExplanationInput {
  const StrategySpec* spec = nullptr;
  std::span<const StepProfile> variants;  // with breakdowns
  const ComposedStages* stages = nullptr;
  const Cluster* cluster = nullptr;
  int64_t global_batch = 0;
  int64_t memory_limit = 0;    // bytes per device; 0: none
  int64_t reserved_bytes = 0;  // of every device, in addition to the composition
  double bound_s = 0, gap = -1;
  std::vector<RunnerUp> runners_up;  // their losses are filled in
  std::vector<std::string> reasons;  // precede those derived from figures
  bool drawings = true;              // timeline and memory curve
};

// Time adds up to the composed step, memory to the fullest device's bytes. The caller sets subject, cluster and device count.
Result<Explanation> explain_composed(const ComposedExplanationInput& input);

// Seconds of a step by report names: compute, recompute, communication,
// offload, bubble, gradients (communication between replicas), update.
std::vector<std::pair<std::string, double>> step_seconds(std::span<const TimeShare> shares);

}  // namespace tessera
