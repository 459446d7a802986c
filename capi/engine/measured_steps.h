// Tries plans on the devices present for a moment each, and measures their steps. This decides where prices
// cannot predict a machine (other work on it, cores that are threads of one core, caches that ranks share).
#pragma once

#include <memory>

#include "graph/graph.h"
#include "parallel/planner/planner.h"
#include "runtime/device_set.h"

namespace tessera {

// For PlanOptions.measure. One plan at a time holds memory; plans alternate, in both orders, so that a
// machine whose speed drifts is fair to all; the fastest turn of a plan counts. Parameters are drawn as for a
// fresh model, inputs are small numbers: token ids inside the smallest table that is looked up.
MeasurePlans measured_steps(std::shared_ptr<DeviceSet> devices, std::shared_ptr<const Graph> graph);

}  // namespace tessera
