// When no plan for generating text fits: what fills the device, the smallest limit and the smallest number of
// devices that would do, exactly. Memory does not depend on links, so no plan needs to be priced.
#pragma once

#include <cstdint>

#include "parallel/analytic/generate_search.h"

namespace tessera {

// The smallest limit under which search_generate finds a plan on this many devices, and the plan that has it.
// bytes INT64_MAX: no plan keeps the budget for keys and values.
struct LeastGenerate {
  int64_t bytes = INT64_MAX;
  GeneratePlan plan;
};
LeastGenerate least_generate(const TransformerShape& model, const DeviceKind& kind, int32_t devices,
                             const GenerateOptions& options);

// The smallest number of devices with which search_generate finds a plan under `limit`; 0: no number does.
struct FewestGenerate {
  int32_t devices = 0;
  GeneratePlan plan;
};
FewestGenerate fewest_generate(const TransformerShape& model, const DeviceKind& kind, int64_t limit,
                               const GenerateOptions& options);

// "no plan fits 80.00 GiB a device; the smallest limit that works is ... (... bytes) with '...'. Its peak:
// ...".
Status nothing_fits_generate(const TransformerShape& model, const Cluster& cluster,
                             const GenerateOptions& options);

}  // namespace tessera
