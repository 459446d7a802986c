// Replay of a program whose ranks share cores: what an instruction takes follows from how many ranks compute
// beside it at each moment. Streams, waits, collectives and messages as in graph/analysis/replay.h.
//
// Time goes from event to event: between two of them the same instructions are under way, each at the speed
// that their number leaves it. A rank that waits takes no core, so that bubbles of one rank speed up the
// others.
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
