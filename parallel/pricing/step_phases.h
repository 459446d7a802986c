// Step phase: the part of a training step that an instruction belongs to. Forward, forward computed again for
// backward, backward, or update.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/program.h"

namespace tessera {

enum class StepPhase : uint8_t { kForward, kRecompute, kBackward, kUpdate };

// By instruction. `graph`: the one whose nodes the instructions name (EntryLayout::graph). A forward node
// that runs after backward has begun on its micro-batch runs again.
std::vector<StepPhase> find_step_phases(const EntryPoint& entry, const Graph& graph);

NodeId node_of(const Instruction& instruction);

}  // namespace tessera
