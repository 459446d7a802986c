// Explanations of the engine's plans, as JSON and as a page.
#pragma once

#include <string>

#include "capi/engine/compile.h"
#include "graph/explanation.h"

namespace tessera {

// Explains the plan's own program, or the one given where the record has none (a trainer's).
Result<Explanation> explain_plan(const PlanRecord& record, bool drawings);

Result<std::string> plan_explanation_json(const PlanRecord& record);
std::string seconds_text(double seconds);  // for reasons: "12.345 ms"
Result<std::string> plan_page(const PlanRecord& record);

}  // namespace tessera
