// The graphs of a training's entries, before planning.
#pragma once

#include <vector>

#include "engine/program/entry_plans.h"
#include "engine/settings/trainer_settings.h"
#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// The entries of compile_training (compile.h); the first is planned, the others follow its placement.
Result<std::vector<GraphToPlan>> training_graphs(const Graph& forward, bool language_model,
                                                 const TrainerSettings& settings);

}  // namespace tessera
