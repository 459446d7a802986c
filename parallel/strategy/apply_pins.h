// Applies pins of single decisions to a plan: the rest of the
// plan is unchanged, and lowering converts layouts as needed.
#pragma once

#include <map>
#include <string>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/plan_pins.h"

namespace tessera {

// Unknown names are errors that name the nearest. Call once, before planning.
Status check_pins(const Graph& graph, const PlanPins& pins);

// Stages that own parameters, for PropagationOptions::owners; empty without pinned stages.
std::map<std::string, int32_t> pinned_owners(const Graph& graph, const PlanPins& pins);

// Applies stored specs, factors and kept activations. Refuses an axis that the mesh
// lacks, a factor that the op lacks or cannot split, and another number of stages.
Status apply_pins(const Graph& graph, const PlanPins& pins, Plan& plan);

// Whether the pins allow the planner to recompute an activation.
bool may_recompute(const Graph& graph, const PlanPins& pins, TensorId activation);

}  // namespace tessera
