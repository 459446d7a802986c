// KindFactors: how much longer than their lower bounds steps of each kind of strategy take, as observed in one search.
#pragma once

#include <cstdint>
#include <map>

#include "parallel/strategy/strategy.h"

namespace tessera {

// The mix of parallelism kinds; strategies of one kind have similar factors over their bounds.
uint32_t kind_of(const StrategySpec& spec);

class KindFactors {
 public:
  // The likely time times the factor observed for the spec's kind.
  double guess_s(const StrategySpec& spec, double likely_s) const;
  // Strategies of its kind that were evaluated.
  double evaluated(const StrategySpec& spec) const;

  // Counts an evaluation; with the simulated step time if it could be lowered.
  void count(const StrategySpec& spec) { ++evaluated_[kind_of(spec)]; }
  void learn(const StrategySpec& spec, double likely_s, double step_s);

 private:
  std::map<uint32_t, int64_t> evaluated_;  // by kind
  std::map<uint32_t, double> factors_;     // by kind: smallest ratio of simulated to likely time
};

}  // namespace tessera
