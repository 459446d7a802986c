// Slot allocation, the last step of lowering a rank: results reuse the
// buffers of operands that die there, then every slot gets its offset.
#pragma once

#include "parallel/lowering/rank_builder.h"

namespace tessera {

// Order in the arena: read-only parameters (graph/analysis/read_only_parameters.h),
// other persistent slots (parameters, state, constants, inputs, outputs), then one
// transient region, as large as the largest entry's. Fills in offsets, arena size,
// live bytes and `peak`; drops merged and unused slots. `packs`: false reuses no
// bytes, for programs whose slots and times are only read.
void allocate_slots(RankBuilder& builder, bool packs = true);

}  // namespace tessera
