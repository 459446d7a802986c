// Pins as JSON text:
//   {"stored": {"block.*.fc.weight": "{[tp], []}"}, "ops": {"block.*.fc.weight": "n over tp"},
//    "keep": ["block.*.attention"], "stages": ["block.3", "block.7"]}
// All keys are optional.
#pragma once

#include <string_view>

#include "graph/base/result.h"
#include "graph/plan_pins.h"

namespace tessera {

Result<PlanPins> plan_pins_from_json(std::string_view text);

}  // namespace tessera
