// Estimates of training steps and of text generation on clusters that may be absent.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/options.h"
#include "parallel/pricing/cluster_parts.h"

namespace tessera {

// A preset ("dgx-a100-80gb:512") or a JSON file (a name ending in ".json"), or several of them joined by +
// ("dgx-a100-80gb:8+dgx-h100:8").
Result<Fleet> open_fleet(const std::string& text);

// kInvalidArgument where a device's memory is not known (memory_bytes 0) and no limit is given.
Status check_memory_known(const Fleet& fleet, int64_t memory_limit);

// JSON, documented in tessera.h at tsr_plan_estimate.
Result<std::string> estimate_step(std::string_view description, const Options& options);

// The explanation as one HTML page.
Result<std::string> estimate_page(std::string_view description, const Options& options);

// Whether the options of tsr_plan_estimate ask for generation (mode=generate).
bool wants_generation(const Options& options);

// JSON, documented in tessera.h at tsr_plan_estimate.
Result<std::string> estimate_generation(std::string_view description, const Options& options);

// The explanation as one HTML page.
Result<std::string> estimate_generation_page(std::string_view description, const Options& options);

}  // namespace tessera
