// One rank's run by itself: its streams and waits as the simulator has them, other ranks there whenever it wants to meet them.
#pragma once

#include <vector>

#include "graph/cluster.h"
#include "graph/program.h"

namespace tessera {

// Seconds from the start of entry 0, by instruction when it begins; one more: when all are done.
std::vector<double> solo_begins(const RankProgram& rank, const Cluster& cluster);

}  // namespace tessera
