// Fusible kernels: the kernels of the gradient norm (casts of gradients, sums of squares, additions) run as
// early as they can, all over the backward pass. Backends that launch neighbours of one kind together
// (TSR_BACKEND_FUSES) want them next to each other, so they are moved down to where the norm is needed. Of
// casts only small ones are moved: a gradient that waits for its cast is held in both types.
#pragma once

#include "graph/program.h"

namespace tessera {

// Moves kernels of an entry of `program`, before its slots are placed, past what has nothing to do with them.
void group_fusible_kernels(EntryPoint& entry, const RankProgram& program);

}  // namespace tessera
