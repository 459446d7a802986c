// Certificates of searched steps as JSON files: everything that a check needs to be done elsewhere, by
// somebody else, later.
#pragma once

#include <string>
#include <string_view>

#include "capi/engine/estimate.h"
#include "graph/base/result.h"
#include "graph/cluster.h"
#include "serialize/json.h"

namespace tessera {

struct StepSearchResult;

Json certificate_json(const SearchRequest& request, const Cluster& cluster, const StepSearchResult& result);

// Searches nothing: derives the space from the request, and proves every claim again. JSON of what was
// checked; kCorrupt names the first claim that does not hold, with what was found and wanted.
Result<std::string> check_certificate_text(std::string_view text);

}  // namespace tessera
