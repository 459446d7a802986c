// Prefetch: moves transfers ahead of their readers, to overlap with earlier kernels.
#pragma once

#include "graph/program.h"

namespace tessera {

// Issues collectives and copies up to `kernels` kernels earlier, as far as
// their sources are ready and their destinations free. Collectives, sends
// and receives keep their relative order, so ranks still agree. Runs
// before slots are placed, since an earlier filled buffer lives longer.
void prefetch(EntryPoint& entry, int32_t kernels);

}  // namespace tessera
