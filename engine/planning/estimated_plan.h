// EstimatedPlan: the training plan of an estimate: given by its words and priced, or searched; composed of lowered blocks, and where that
// is asked for lowered whole.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/planning/estimated_model.h"
#include "graph/base/result.h"
#include "graph/cluster.h"
#include "parallel/planner/composed_search.h"
#include "parallel/pricing/cluster_parts.h"

namespace tessera {

// Whether the plan is lowered whole: kAuto where that is quick.
enum class Verify : uint8_t { kAuto, kOn, kOff };

// A device of the pipeline, and the arena that its first rank is lowered to.
struct LoweredDevice {
  int32_t device = 0;
  int64_t bytes = 0;  // with what the device reserves
};

// KindChoice: the result of planning with some kinds of devices and leaving the others idle.
struct KindChoice {
  std::string used, idle;
  std::optional<double> step_s;  // none: nothing fits
};

struct EstimatedPlan {
  Cluster cluster;  // of one kind; of several, those that are used
  ComposedPlan plan;
  std::optional<ComposedSearchResult> search;  // absent where the plan was given
  std::vector<KindChoice> kinds;               // of clusters with several; the plan's first
  std::vector<LoweredDevice> lowered;
  int64_t reserved_bytes = 0;  // of a device
  int64_t limit = 0;           // of a device, reserves included
  // Bytes of every device of the pipeline, its reserve included; exact where the device was lowered.
  std::vector<int64_t> bytes() const;
  bool fits() const;
};

// Words that name a mesh of all devices are priced, whatever they take; others are kept by the plan that is searched.
Result<EstimatedPlan> estimate_plan(const EstimatedModel& model, const EstimateRequest& request,
                                    const Fleet& fleet, Verify verify, double within);

// Profiles of the plan's blocks, by cause: the first keeps activations, the second, if any, computes them again.
Result<std::vector<StepProfile>> plan_profiles(const EstimatedModel& model, const EstimateRequest& request,
                                               const EstimatedPlan& it);

// Limit of composed bytes: a device's limit without its reserve and without a hundredth, which packing may add.
int64_t composed_limit(const Cluster& cluster, int64_t memory_limit);

}  // namespace tessera
