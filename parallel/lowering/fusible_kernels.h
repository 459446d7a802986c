// Gathering launches: what the gradient norm is made of (a cast of a gradient, its sum of squares, an
// addition) runs as soon as it can, here and there in the backward pass. Backends that make one launch of
// kernels of a kind that follow one another (TSR_BACKEND_FUSES) want them side by side: they are moved down
// to where the norm is needed. Of casts only small ones are: a gradient that waits to be cast lies there in
// both types.
#pragma once

#include "graph/program.h"

namespace tessera {

// Moves kernels of an entry of `program`, before its slots are placed, past what has nothing to do with them.
void group_fusible_kernels(EntryPoint& entry, const RankProgram& program);

}  // namespace tessera
