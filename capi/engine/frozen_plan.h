// Reasons why a model with frozen parameters is planned differently from one trained in full, on the devices
// present. Both are planned, and the frozen model's plan is also lowered for full training.
#pragma once

#include <string>
#include <vector>

#include "capi/engine/compile.h"

namespace tessera {

// Sentences; none where nothing is frozen. `compiled` is the result of compile_training for the other
// arguments. Full training means the model without adapters.
std::vector<std::string> frozen_plan_reasons(const Graph& forward, bool language_model,
                                             const TrainerSettings& settings,
                                             const std::shared_ptr<DeviceSet>& devices,
                                             const PlanRecord& compiled);

}  // namespace tessera
