// Estimates of text generation on clusters that may be absent.
#pragma once

#include <string>
#include <string_view>

#include "capi/engine/options.h"

namespace tessera {

// Whether the options of tsr_plan_estimate ask for generation (mode=generate).
bool wants_generation(const Options& options);

// JSON, documented in tessera.h at tsr_plan_estimate.
Result<std::string> estimate_generation(std::string_view description, const Options& options);

// The explanation as one HTML page.
Result<std::string> estimate_generation_page(std::string_view description, const Options& options);

}  // namespace tessera
