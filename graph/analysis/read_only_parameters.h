// Read-only parameters: those that no instruction of a rank writes. Sessions may keep them outside of their
// arena, in memory that others read too.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/program.h"

namespace tessera {

// By slot: whether an instruction writes to it.
std::vector<bool> find_written_slots(const RankProgram& rank);
bool writes_parameter(const RankProgram& rank, const Instruction& instruction);

struct ReadOnlyParameters {
  std::vector<int32_t> slots;  // ascending
  // The device arena below this offset, a multiple of the slots' alignment, holds read-only parameters alone.
  int64_t bytes = 0;
};
// Finds the read-only parameters of the device tier. Lowering places them at the bottom of the arena; any
// that lie elsewhere are left out.
ReadOnlyParameters find_read_only_parameters(const RankProgram& rank);

}  // namespace tessera
