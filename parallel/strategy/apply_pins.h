// Pins of single decisions carried into a plan: the rest of the plan stays, lowering moves what then lies
// elsewhere.
#pragma once

#include <map>
#include <string>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/plan_pins.h"

namespace tessera {

// Names that nothing in the graph has are errors that name the nearest. To be asked once, before any plan.
Status check_pins(const Graph& graph, const PlanPins& pins);

// Stages that own parameters, for PropagationOptions::owners; empty without pinned stages.
std::map<std::string, int32_t> pinned_owners(const Graph& graph, const PlanPins& pins);

// Stored specs, factors and what is kept. Says what the plan cannot have: an axis that its mesh lacks, a
// factor that the operation does not have or that may not be split, another number of stages.
Status apply_pins(const Graph& graph, const PlanPins& pins, Plan& plan);

// Whether the pins leave it to the planner to compute an activation again.
bool may_recompute(const Graph& graph, const PlanPins& pins, TensorId activation);

}  // namespace tessera
