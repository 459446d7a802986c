// Explanation of a plan for the present devices,
// derived from its lowered program and simulated run.
#pragma once

#include <cstdint>
#include <span>

#include "graph/explanation.h"
#include "parallel/lowering/lower.h"
#include "parallel/planner/planner.h"
#include "parallel/pricing/simulator.h"

namespace tessera {

struct ExplainOptions {
  int64_t memory_limit = 0;                    // bytes per device; 0: none
  std::span<const Candidate> candidates = {};  // the planner's, best first
  size_t runners_up = 12;
  bool timeline = true;  // with the memory curve
  size_t most_spans = 60'000;
  size_t most_points = 2'000;
};

// `entries`: those of `program`; time is of `simulation`'s entry,
// memory of the entry with the largest run. Time adds up to the
// simulated step, memory to the arena of the fullest device.
Result<Explanation> explain_program(std::span<const EntrySpec> entries, const Program& program,
                                    const Simulation& simulation, const ExplainOptions& options = {});

}  // namespace tessera
