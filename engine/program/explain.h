// Explanations of the engine's plans, as JSON and as a page.
#pragma once

#include <string>
#include <vector>

#include "engine/program/compile.h"
#include "graph/explanation.h"

namespace tessera {

// Explains the plan's program, or the given one if the record has none (a trainer's).
Result<Explanation> explain_plan(const PlanRecord& record, bool drawings);

Result<std::string> plan_explanation_json(const PlanRecord& record);
std::string seconds_text(double seconds);  // for reasons: "12.345 ms"
Result<std::string> plan_page(const PlanRecord& record);

// Reasons why a model with frozen parameters is planned differently from full
// training (the model without adapters) on these devices: both are planned, and
// the frozen plan is lowered for full training. Sentences; empty if nothing is
// frozen. `compiled`: the result of compile_training for the other arguments.
std::vector<std::string> frozen_plan_reasons(const Graph& forward, bool language_model,
                                             const TrainerSettings& settings,
                                             const std::shared_ptr<DeviceSet>& devices,
                                             const PlanRecord& compiled);

}  // namespace tessera
