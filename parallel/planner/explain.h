// Explanations of plans: of a lowered program, of a composed training step, and of composed generation. What they have in
// common is in explanation_parts.h; each contributes where its time and memory go, and its decisions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/explanation.h"
#include "parallel/composition/composed_memory.h"
#include "parallel/lowering/lower.h"
#include "parallel/planner/explanation_parts.h"
#include "parallel/planner/generation_search.h"
#include "parallel/planner/planner.h"
#include "parallel/pricing/simulator.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

struct ExplainOptions {
  int64_t memory_limit = 0;                    // bytes per device; 0: none
  std::span<const Candidate> candidates = {};  // the planner's, best first
  size_t runners_up = 12;
  ExplanationDrawings drawings = {};
};

// `entries`: those of `program`; time is of `simulation`'s entry,
// memory of the entry with the largest run. Time adds up to the
// simulated step, memory to the arena of the fullest device.
Result<Explanation> explain_program(std::span<const EntrySpec> entries, const Program& program,
                                    const Simulation& simulation, const ExplainOptions& options = {});

struct ComposedExplanationInput {
  const StrategySpec* spec = nullptr;
  std::span<const StepProfile> variants;  // with breakdowns
  const ComposedStages* stages = nullptr;
  const Cluster* cluster = nullptr;
  int64_t global_batch = 0;
  int64_t memory_limit = 0;    // bytes per device; 0: none
  int64_t reserved_bytes = 0;  // of every device, in addition to the composition
  double bound_s = 0, gap = -1;
  std::vector<RunnerUp> runners_up;  // their losses are filled in
  std::vector<std::string> reasons;  // precede those derived from figures
  ExplanationDrawings drawings = {};
};

// Time adds up to the composed step, memory to the fullest device's bytes. The caller sets subject, cluster and device count.
Result<Explanation> explain_composed(const ComposedExplanationInput& input);

// Seconds of a step by report names: compute, recompute, communication,
// offload, bubble, gradients (communication between replicas), update.
std::vector<std::pair<std::string, double>> step_seconds(std::span<const TimeShare> shares);

// `found`: the result of `search` on these prices. Time adds up to the
// request in the slowest stage, memory to the fullest stage's bytes.
Result<Explanation> explain_generation(GenerationPrices& prices, const GenerationOptions& search,
                                       const GenerationResult& found, const ExplanationDrawings& drawings = {});

}  // namespace tessera
