// One rank's run by itself: its streams and waits as the simulator has them, other ranks there whenever it wants to meet them.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "graph/cluster.h"
#include "graph/program.h"
#include "parallel/pricing/cost_model.h"

namespace tessera {

// Traits by which other software runs the same program: what published steps are compared with.
struct SoftwareTraits {
  bool one_stream = false;  // nothing overlaps
  std::function<void(const RankProgram&, const Instruction&, InstructionPrice&)> reprice = {};
};

// By instruction of entry 0.
std::vector<InstructionPrice> solo_prices(const RankProgram& rank, const Cluster& cluster,
                                          const SoftwareTraits& traits);

// Seconds from the start of entry 0, by instruction.
struct SoloRun {
  std::vector<double> begins, ends;
  double end_s = 0;
};
SoloRun run_solo(const RankProgram& rank, const Cluster& cluster, std::span<const InstructionPrice> prices,
                 bool one_stream);

}  // namespace tessera
