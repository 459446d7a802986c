// Live ranges of one rank's memory: its slots by cause and time.
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
  kInputs,  // with constants and outputs
  kGradients,
  kActivations,  // saved from forward for backward
  kLogits,       // logits-sized values: logits, their gradient, intermediates of the loss
  kGathered,     // whole parameters for use
  kCommunication,
  kTransient,
  kWorkspace,
};
inline constexpr size_t kMemoryCauses = 11;
std::string_view to_text(MemoryCause cause);

// LiveRange: a slot while it holds one value, from the writing instruction
// to its last use, inclusive. Persistent slots are held throughout.
struct LiveRange {
  int32_t slot = -1;
  int32_t first = 0, last = 0;
  TensorId tensor = kNoTensor;  // of the layout's graph; kNoTensor for workspaces
  MemoryCause cause = MemoryCause::kTransient;
};

// Excludes slots of other entries. Live ranges of a slot do not overlap,
// so the sum over those alive at an instruction is its live bytes.
std::vector<LiveRange> find_live_ranges(const RankProgram& rank, size_t entry, const EntryLayout& layout,
                                        const std::vector<StepPhase>& phases);

// MemoryOverTime: bytes of one tier at every instruction, by cause; a run without instructions has one moment.
struct MemoryOverTime {
  std::vector<std::array<int64_t, kMemoryCauses>> at;
  std::vector<int64_t> total;
  size_t peak = 0;  // the first maximum
};
MemoryOverTime memory_over_time(const RankProgram& rank, size_t entry,
                                const std::vector<LiveRange>& live_ranges, Tier tier);

// Positions are indices of `memory`; the fullest of a run of moments represents it.
MemoryCurve memory_curve(const MemoryOverTime& memory, size_t most_points);

}  // namespace tessera
