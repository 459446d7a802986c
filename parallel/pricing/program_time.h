// A simulated run by cause: every nanosecond of the rank that finishes last is given to what it waits for
// then.
#pragma once

#include <string>
#include <vector>

#include "graph/explanation.h"
#include "parallel/lowering/entry_layout.h"
#include "parallel/pricing/simulator.h"
#include "parallel/pricing/step_phases.h"

namespace tessera {

struct CauseOfTime {
  std::string cause, axis;  // as in TimeShare
  friend bool operator==(const CauseOfTime&, const CauseOfTime&) = default;
};

// What the time of an instruction is spent on. Messages inside a stage are named after the axis that they go
// along, those between stages "pp".
CauseOfTime cause_of(const RankProgram& rank, int32_t rank_index, const Instruction& instruction,
                     StepPhase era, const EntryLayout& layout);

struct TimeByCause {
  int32_t rank = 0;               // that ends last, the lowest of those
  std::vector<TimeShare> shares;  // add up to the simulation's end
};

// `phases` by rank. Where several streams run at once, computation counts before collectives, those before
// copies between tiers, those before messages; where nothing runs the rank waits: in a pipeline's bubble,
// else for other ranks.
TimeByCause time_by_cause(const Program& program, const Simulation& simulation, const EntryLayout& layout,
                          const std::vector<std::vector<StepPhase>>& phases);

}  // namespace tessera
