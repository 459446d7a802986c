// Certificates of searched steps as JSON files: everything that an independent check needs, elsewhere or
// later.
#pragma once

#include <string>
#include <string_view>

#include "engine/planning/estimated_plan.h"
#include "graph/base/result.h"
#include "text/json.h"

namespace tessera {

// kUnsupported where the search ended with configurations still open, looked at several kinds of devices, or turned to offload by itself.
Result<Json> certificate_json(const EstimateRequest& request, const EstimatedPlan& found);

// Checks a certificate without a search: derives the space from the request, and proves every claim again.
// Returns JSON of the claims; kCorrupt names the first false one, with the value found and wanted.
Result<std::string> check_certificate_text(std::string_view text);

}  // namespace tessera
