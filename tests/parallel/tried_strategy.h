// One configuration of the planner's space lowered, simulated and sized by itself, which plans and bounds are
// held against.
#pragma once

#include <algorithm>
#include <cstdint>

#include "parallel/pricing/host_tier.h"
#include "parallel/pricing/simulator.h"
#include "tests/parallel/step_graphs.h"

namespace tessera {

struct Tried {
  bool admitted = false;
  double seconds = 0;
  int64_t bytes = 0;  // of the fullest rank, as a memory limit counts them
};

inline Tried tried(const Graph& step, const Plan& plan, const Cluster& cluster) {
  const EntrySpec entry{"step", &step, &plan};
  const auto program = lower(std::span(&entry, 1), FakeCatalog());
  if (!program.ok()) return {};
  Tried result{true, simulate(*program, "step", cluster).value().seconds(), 0};
  for (const RankProgram& rank : program->ranks) result.bytes = std::max(result.bytes, limited_bytes(rank, cluster));
  return result;
}

inline Tried tried(const Graph& step, const StrategySpec& spec, int64_t batch, int64_t tokens,
                   const Cluster& cluster) {
  const std::vector<std::pair<std::string, int64_t>> symbols = {{"T", tokens}};
  auto plan = apply_strategy(step.bind_partly(symbols).value(), spec, batch);
  if (!plan.ok()) return {};
  plan->symbols = symbols;
  return tried(step, *plan, cluster);
}

}  // namespace tessera
