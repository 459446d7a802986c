// Why a model with frozen parameters is planned differently from one that is trained in full, for the devices
// at hand: both are planned, and this very plan is lowered for full training too.
#pragma once

#include <string>
#include <vector>

#include "capi/engine/compile.h"

namespace tessera {

// Sentences; none where nothing is frozen. `compiled` is what compile_training made of the other arguments.
// Full training is of the model without adapters.
std::vector<std::string> frozen_plan_reasons(const Graph& forward, bool language_model,
                                             const TrainerSettings& settings,
                                             const std::shared_ptr<DeviceSet>& devices,
                                             const PlanRecord& compiled);

}  // namespace tessera
