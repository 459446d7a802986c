// Who holds which bytes of one rank, and when: the slots of its program by what they are for.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/explanation.h"
#include "parallel/lowering/entry_layout.h"
#include "parallel/pricing/step_phases.h"

namespace tessera {

enum class MemoryCause : uint8_t {
  kParameters,
  kOptimizer,
  kCaches,
  kInputs,  // and constants and outputs
  kGradients,
  kActivations,  // kept from forward for backward
  kLogits,       // values as large as the logits: they, their gradient, what the loss makes of them
  kGathered,     // parameters whole, for use
  kCommunication,
  kTransient,
  kWorkspace,
};
inline constexpr size_t kMemoryCauses = 11;
std::string_view to_text(MemoryCause cause);

// Live range: a slot while it holds one value, from the instruction that writes it to the last that needs it
// (both included). What outlives a run is held throughout.
struct LiveRange {
  int32_t slot = -1;
  int32_t first = 0, last = 0;
  TensorId tensor = kNoTensor;  // of the layout's graph; absent where it is none's (workspaces)
  MemoryCause cause = MemoryCause::kTransient;
};

// Slots of other entries' runs are left out: they are not alive in this one. In each slot live_ranges follow
// each other without overlap, so the bytes of those alive at an instruction add up to what is alive there.
std::vector<LiveRange> find_live_ranges(const RankProgram& rank, size_t entry, const EntryLayout& layout,
                                        const std::vector<StepPhase>& phases);

// Bytes of one tier at every instruction, by cause; a run without instructions has one moment.
struct MemoryOverTime {
  std::vector<std::array<int64_t, kMemoryCauses>> at;
  std::vector<int64_t> total;
  size_t peak = 0;  // the first of the largest
};
MemoryOverTime memory_over_time(const RankProgram& rank, size_t entry,
                                const std::vector<LiveRange>& live_ranges, Tier tier);

// Positions are those of `memory`: of many moments in a row the fullest stands for all.
MemoryCurve memory_curve(const MemoryOverTime& memory, size_t most_points);

}  // namespace tessera
