// What every plan of a step's space holds on some device, in closed form: weights, gradients and optimizer
// state as if all devices shared them out evenly, and what contexts take. Tells at once that nothing fits,
// before anything is searched.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "graph/base/status.h"
#include "graph/cluster.h"
#include "parallel/analytic/step_space.h"

namespace tessera {

// The smallest number of such devices whose floor is within `limit`, when nothing waits on the host but what
// is said to; INT64_MAX when no number is.
int64_t devices_by_floor(const TransformerShape& model, const Cluster& cluster,
                         const StepSearchOptions& options, int64_t limit);

// Bytes of a device that a plan may fill.
int64_t memory_limit_of(const Cluster& cluster, const StepSearchOptions& options);

// kOutOfMemory where the floor alone shows that search_step of the whole space finds nothing, in its last
// resort neither. Says nothing of pinned spaces, which may have no plan for other reasons.
std::optional<Status> surely_too_large(const TransformerShape& model, const Cluster& cluster,
                                       const StepSearchOptions& options);

// Whether no pipeline over devices of several kinds, each filled to its own limit, holds the model.
bool surely_too_large(const TransformerShape& model, std::span<const Cluster> kinds,
                      const StepSearchOptions& options);

}  // namespace tessera
