// TouchedSlots: the slots that an instruction reads and writes, for reordering and fusion.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/program.h"

namespace tessera {

struct TouchedSlots {
  std::vector<int32_t> reads, writes;  // a slot may occur more than once
};
TouchedSlots touched_slots(const Instruction& instruction);

}  // namespace tessera
