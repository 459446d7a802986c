// Closed-form bounds of configurations of the whole space: the least that a pipeline takes.
#pragma once

#include <cstdint>

#include "parallel/analytic/block_ways.h"

namespace tessera {

// No shorter pipeline is possible, with the plan's number of chunks or up to `chunks_to`: from all stages'
// passes as if they were one, which a slow host makes shorter.
double pipeline_bound(const TransformerShape& model, const StepSearchOptions& options,
                      const ForeignPlan& plan, int32_t chunks_to, const StageTimes& times);

}  // namespace tessera
