// Replay of a program whose ranks share cores: an instruction's speed depends on how many ranks
// compute at each moment. Streams, waits, collectives and messages as in graph/analysis/replay.h.
//
// Event-driven: between events the same instructions run,
// each at the speed their number allows. A waiting rank
// uses no core, so one rank's bubbles speed up the others.
#pragma once

#include <span>
#include <vector>

#include "graph/analysis/replay.h"
#include "parallel/pricing/cost_model.h"

namespace tessera {

// `prices` [rank][instruction] of entry `entry`. The program is one that `replay` accepts.
Result<Replay> replay_shared(const Program& program, size_t entry, std::span<const Dependencies> ranks,
                             std::span<const std::vector<InstructionPrice>> prices, const Cluster& cluster);

}  // namespace tessera
