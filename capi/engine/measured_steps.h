// Runs plans on the devices at hand for a moment each, and says what a step takes: what prices cannot
// foretell of a machine (other work on it, cores that are threads of one core, caches that ranks share)
// decides there.
#pragma once

#include <memory>

#include "graph/graph.h"
#include "parallel/planner/planner.h"
#include "runtime/device_set.h"

namespace tessera {

// For PlanOptions.measure. One plan at a time holds memory; all take turns, there and back, so that a machine
// whose speed drifts is fair to all; the fastest turn of a plan counts. Parameters hold what a fresh model
// draws, inputs small numbers: tokens lie within the smallest table that is looked up.
MeasurePlans measured_steps(std::shared_ptr<DeviceSet> devices, std::shared_ptr<const Graph> graph);

}  // namespace tessera
