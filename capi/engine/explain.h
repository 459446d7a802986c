// Explanations of plans that were made through the engine, as JSON and as a page.
#pragma once

#include <string>

#include "capi/engine/compile.h"
#include "graph/explanation.h"

namespace tessera {

// Of the plan's own program, or of the one given where the record has none (a trainer's).
Result<Explanation> explain_plan(const PlanRecord& record, bool drawings);

Result<std::string> plan_explanation_json(const PlanRecord& record);
std::string seconds_text(double seconds);  // for reasons: "12.345 ms"
Result<std::string> plan_page(const PlanRecord& record);

}  // namespace tessera
