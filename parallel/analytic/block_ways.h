// The ways to compute a transformer block in a training step: kept, recomputed, or kept on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/analytic/stage_time.h"
#include "parallel/analytic/step_space.h"

namespace tessera {

// Sums of rounded times may differ from the replay's in the last bits.
constexpr double kBoundSlack = 1 - 1e-9;

// One way to compute a block.
struct BlockWay {
  Recompute recompute = Recompute::kNone;
  int32_t quarters = 0;  // of what it keeps, on the host
  double seconds = 0;
};

StageBlocks blocks_of(int64_t count, const BlockWay& way);
double seconds_of(const StagePasses& passes);
// That may be chosen, the fastest first.
std::vector<Recompute> recomputations(const StepSearchOptions& options, const ForeignPlan& plan);

}  // namespace tessera
