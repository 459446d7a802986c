// PlanQueue: the configurations that a search of plans has not looked at yet, and which of them comes next.
// Orders the search and closes nothing: that is what bounds are for (plan_bound.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "parallel/planner/plan_space.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

// A configuration that has come up.
struct OpenPlan {
  double bound_s = 0;   // no step of it is faster
  double likely_s = 0;  // nor likely faster than what it saves memory from, which orders and ends the search
  size_t order = 0;
  SpaceNode node;
  uint32_t kind = 0;               // kind_of its strategy
  int64_t saves_from = INT64_MAX;  // bytes of what it saves memory from
};

// Which kinds of parallelism a strategy mixes: those of one kind miss their bounds by like factors.
uint32_t kind_of(const StrategySpec& spec);

class PlanQueue {
 public:
  bool empty() const { return open_.empty(); }
  const std::vector<OpenPlan>& open() const { return open_; }

  void push(SpaceNode node, double bound_s, double likely_s, int64_t saves_from);
  void put_back(OpenPlan open) { open_.push_back(std::move(open)); }

  // By guess; or the kinds of strategies in turn, of each what saves from the smallest. Not of an empty
  // queue.
  OpenPlan take(bool smallest_first);

  // The likely time, times what strategies of its kinds were found to take more.
  double guess_s(const OpenPlan& open) const;

  // That one was looked at; with the time of its simulated step where it could be lowered.
  void count(const OpenPlan& open) { ++looked_at_[open.kind]; }
  void learn(const OpenPlan& open, double step_s);

 private:
  std::vector<OpenPlan> open_;
  size_t next_order_ = 0;
  std::map<uint32_t, int64_t> looked_at_;  // by kind
  std::map<uint32_t, double> factors_;     // by kind: the least found between simulated steps and likely ones
};

}  // namespace tessera
