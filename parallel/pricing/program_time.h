// Time of a simulated run by cause: every nanosecond of the
// last rank is attributed to the activity it waits for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/explanation.h"
#include "parallel/lowering/entry_layout.h"
#include "parallel/pricing/simulator.h"
#include "parallel/pricing/step_phases.h"

namespace tessera {

struct CauseOfTime {
  std::string cause, axis;  // see TimeShare
  friend bool operator==(const CauseOfTime&, const CauseOfTime&) = default;
};

// The cause of an instruction's time. Messages within a stage
// are named after their axis, those between stages "pp".
CauseOfTime cause_of(const RankProgram& rank, int32_t rank_index, const Instruction& instruction,
                     StepPhase phase, const EntryLayout& layout);

// CausedInterval: the interval of an instruction, in ticks.
struct CausedInterval {
  int64_t begin = 0, end = 0;
  CauseOfTime cause;
  int priority = 0;  // the lowest of concurrent intervals counts
};
int priority_of(const CauseOfTime& cause, const Instruction& instruction);

// Shares of [begin, end), in order, which add up to it: "waiting" where nothing runs. Intervals may extend beyond it.
std::vector<TimeShare> time_shares(std::span<const CausedInterval> intervals, int64_t begin, int64_t end,
                                   double tick_s);

// Adds `times` of a share to its cause and axis.
void add_share(std::vector<TimeShare>& shares, const TimeShare& share, double times);
void sort_shares(std::vector<TimeShare>& shares);

struct TimeByCause {
  int32_t rank = 0;               // that ends last; ties: the lowest
  std::vector<TimeShare> shares;  // add up to the simulation's end
};

// `phases`: by rank. Of concurrent streams computation counts
// first, then collectives, tier copies, messages; if nothing runs
// the rank waits: in a pipeline's bubble, else for other ranks.
TimeByCause time_by_cause(const Program& program, const Simulation& simulation, const EntryLayout& layout,
                          const std::vector<std::vector<StepPhase>>& phases);

}  // namespace tessera
