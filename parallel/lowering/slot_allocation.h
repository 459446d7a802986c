// Slot allocation: the last step of lowering a rank. Lets results take over the buffers of operands that die
// there, then gives every slot its offset.
#pragma once

#include "parallel/lowering/rank_builder.h"

namespace tessera {

// At the bottom parameters that nothing writes (graph/analysis/read_only_parameters.h), then all else that
// outlives a run (parameters, state, constants, inputs, outputs), above it one region for what lives inside a
// run, as large as the entry that needs most. Fills in offsets, arena and live bytes and `peak`; slots that
// were merged or are not used any more are dropped. `packs`: else nothing lies where something else was, for programs of which
// slots and times are read, and which are never run.
void allocate_slots(RankBuilder& builder, bool packs = true);

}  // namespace tessera
