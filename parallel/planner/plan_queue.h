// PlanQueue: unexplored configurations of a plan search, and
// their order. Only bounds close configurations (plan_bound.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "parallel/planner/plan_space.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

// OpenPlan: an unexplored configuration.
struct OpenPlan {
  double bound_s = 0;   // lower bound of its step
  double likely_s = 0;  // estimated time, never below the parent's; orders and ends the search
  size_t order = 0;
  SpaceNode node;
  uint32_t kind = 0;               // kind_of its strategy
  int64_t saves_from = INT64_MAX;  // bytes of the parent whose memory it saves
};

// The mix of parallelism kinds; strategies of one kind have similar factors over their bounds.
uint32_t kind_of(const StrategySpec& spec);

class PlanQueue {
 public:
  bool empty() const { return open_.empty(); }
  const std::vector<OpenPlan>& open() const { return open_; }

  void push(SpaceNode node, double bound_s, double likely_s, int64_t saves_from);
  void put_back(OpenPlan open) { open_.push_back(std::move(open)); }

  // By estimate; or strategy kinds in turn, each with the
  // smallest parent first. The queue must not be empty.
  OpenPlan take(bool smallest_first);

  // The likely time times the factor observed for its kind.
  double guess_s(const OpenPlan& open) const;

  // Counts an exploration; with the simulated step time if it could be lowered.
  void count(const OpenPlan& open) { ++looked_at_[open.kind]; }
  void learn(const OpenPlan& open, double step_s);

 private:
  std::vector<OpenPlan> open_;
  size_t next_order_ = 0;
  std::map<uint32_t, int64_t> looked_at_;  // by kind
  std::map<uint32_t, double> factors_;     // by kind: smallest ratio of simulated to likely time
};

}  // namespace tessera
