// TouchedSlots: what an instruction reads and writes, for those who reorder or join instructions.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/program.h"

namespace tessera {

struct TouchedSlots {
  std::vector<int32_t> reads, writes;  // a slot may stand in either more than once
};
TouchedSlots touched_slots(const Instruction& instruction);

}  // namespace tessera
