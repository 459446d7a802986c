// SoloRun: one rank simulated alone: streams and waits as in the simulator, with other ranks always ready.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "graph/cluster.h"
#include "graph/program.h"
#include "parallel/pricing/cost_model.h"

namespace tessera {

// SoftwareTraits: properties of other software that runs the same program, for comparison with published steps.
struct SoftwareTraits {
  bool one_stream = false;  // nothing overlaps
  std::function<void(const RankProgram&, const Instruction&, InstructionPrice&)> reprice = {};
};

// Prices by instruction of entry 0.
std::vector<InstructionPrice> solo_prices(const RankProgram& rank, const Cluster& cluster,
                                          const SoftwareTraits& traits);

// Seconds since the start of entry 0, by instruction.
struct SoloRun {
  std::vector<double> begins, ends;
  double end_s = 0;
};
SoloRun run_solo(const RankProgram& rank, const Cluster& cluster, std::span<const InstructionPrice> prices,
                 bool one_stream);

}  // namespace tessera
