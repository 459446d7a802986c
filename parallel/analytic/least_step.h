// When no step fits: the smallest limit and the smallest number of devices that would do, exactly, and what
// fills the device then.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "graph/base/result.h"
#include "parallel/analytic/step_solver.h"
#include "parallel/analytic/step_space.h"

namespace tessera {

// The smallest limit under which search_step finds a plan on this cluster, with the configuration that has
// it; `below` where none is smaller.
struct LeastLimit {
  int64_t bytes = INT64_MAX;
  ForeignPlan plan;
};
LeastLimit least_limit(const TransformerShape& model, const Cluster& cluster,
                       const StepSearchOptions& options, int64_t below = INT64_MAX);

// The smallest number of devices above the cluster's with which search_step finds a plan under its limit, and
// a configuration that has it; nothing up to `most`.
struct FewestDevices {
  int32_t devices = 0;
  ForeignPlan plan;
};
std::optional<FewestDevices> fewest_devices_for(const TransformerShape& model, const Cluster& cluster,
                                                const StepSearchOptions& options, int32_t most);

// "no plan fits 16 GiB a device; the smallest limit that works is ... bytes) with '...'. Its peak: ..., the
// smallest number of devices ...".
Status nothing_fits(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options);

}  // namespace tessera
