// StepPhase: the part of a training step that an instruction
// belongs to: forward, recomputed forward, backward, or update.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/program.h"

namespace tessera {

enum class StepPhase : uint8_t { kForward, kRecompute, kBackward, kUpdate };

// By instruction. `graph`: named by the instructions (EntryLayout::graph). A
// forward node that runs after its micro-batch's backward has begun is recomputed.
std::vector<StepPhase> find_step_phases(const EntryPoint& entry, const Graph& graph);

NodeId node_of(const Instruction& instruction);

}  // namespace tessera
