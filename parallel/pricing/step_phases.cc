#include "parallel/pricing/step_phases.h"

#include <set>

#include "graph/analysis/instructions.h"

namespace tessera {

NodeId node_of(const Instruction& instruction) {
  return std::visit([](const auto& it) { return it.node; }, instruction);
}

std::vector<StepPhase> find_step_phases(const EntryPoint& entry, const Graph& graph) {
  std::vector<StepPhase> phases;
  std::set<int32_t> turned;  // micro-batches whose backward has begun
  for (const Instruction& instruction : entry.code) {
    const NodeId id = node_of(instruction);
    const Phase phase =
        id == kNoNode || index(id) >= graph.nodes().size() ? Phase::kForward : graph.node(id).phase;
    const int32_t micro_batch = micro_batch_of(instruction);
    const bool runs = std::holds_alternative<KernelInst>(instruction);
    if (phase == Phase::kUpdate) {
      phases.push_back(StepPhase::kUpdate);
    } else if (phase != Phase::kForward) {
      // A prefetch for backward does not begin it.
      if (runs) turned.insert(micro_batch);
      phases.push_back(StepPhase::kBackward);
    } else {
      phases.push_back(turned.contains(micro_batch) ? StepPhase::kRecompute : StepPhase::kForward);
    }
  }
  return phases;
}

}  // namespace tessera
