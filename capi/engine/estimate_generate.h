// Prices and plans of generating text on clusters that need not be present.
#pragma once

#include <string>
#include <string_view>

#include "capi/engine/options.h"

namespace tessera {

// Whether the options of tsr_plan_estimate ask for generation (mode=generate).
bool wants_generation(const Options& options);

// JSON, as tessera.h says of tsr_plan_estimate.
Result<std::string> estimate_generation(std::string_view description, const Options& options);

// The same explained, as one HTML page.
Result<std::string> estimate_generation_page(std::string_view description, const Options& options);

}  // namespace tessera
