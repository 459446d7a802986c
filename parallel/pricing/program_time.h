// A simulated run by cause: every nanosecond of the rank that finishes last is given to what it waits for
// then.
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
  std::string cause, axis;  // as in TimeShare
  friend bool operator==(const CauseOfTime&, const CauseOfTime&) = default;
};

// What the time of an instruction is spent on. Messages inside a stage are named after the axis that they go
// along, those between stages "pp".
CauseOfTime cause_of(const RankProgram& rank, int32_t rank_index, const Instruction& instruction,
                     StepPhase phase, const EntryLayout& layout);

// CausedInterval: the time in which an instruction runs, in ticks.
struct CausedInterval {
  int64_t begin = 0, end = 0;
  CauseOfTime cause;
  int priority = 0;  // the lowest of those that run at once counts
};
int priority_of(const CauseOfTime& cause, const Instruction& instruction);

// Shares of the time from `begin` to `end`, in order, which they add up to: "waiting" where nothing runs. Intervals may reach beyond it.
std::vector<TimeShare> time_shares(std::span<const CausedInterval> intervals, int64_t begin, int64_t end,
                                   double tick_s);

// Adds `times` of a share to those of its cause and axis.
void add_share(std::vector<TimeShare>& shares, const TimeShare& share, double times);
void sort_shares(std::vector<TimeShare>& shares);

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
