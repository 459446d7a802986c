// EstimatedPlan: the training plan of an estimate: given by its words and priced, or searched; composed of lowered blocks, and where that
// is asked for lowered whole.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "capi/engine/estimated_model.h"
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

// What a choice of the kinds of devices that there are comes to.
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
  // Of every device of the pipeline, with its reserve: as lowered, else as composed.
  std::vector<int64_t> bytes() const;
  bool fits() const;
};

// Words that name a mesh of all devices are priced, whatever they take; others are kept by the plan that is searched.
Result<EstimatedPlan> estimate_plan(const EstimatedModel& model, const EstimateRequest& request,
                                    const Fleet& fleet, Verify verify, double within);

// Of the plan's blocks, that keep their activations and that compute them again, with breakdowns by cause.
Result<std::vector<StepProfile>> plan_profiles(const EstimatedModel& model, const EstimateRequest& request,
                                               const EstimatedPlan& it);

// What of a device a plan that was not lowered whole may fill: less a hundredth, as packing adds about that to what is composed.
int64_t composed_limit(const Cluster& cluster, int64_t memory_limit);

}  // namespace tessera
