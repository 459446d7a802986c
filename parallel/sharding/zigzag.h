// Zig-zag order of a sequence over the N ranks of an axis: rank i holds the i-th and the (2N-1-i)-th of 2N
// pieces, so that under a causal mask every rank sees the same number of pairs. Ranks hold as many tokens as
// in the plain order; only which ones they are differs (ALGEBRA rule 9).
#pragma once

#include <cstdint>
#include <vector>

#include "graph/sharding_spec.h"

namespace tessera {

// The logical ranges (one or two) of `local`, a part of what rank `part` of `parts` holds in the order of the
// shards. Ranges that turn out empty are left out.
std::vector<Range> zigzag_ranges(int64_t extent, int64_t unit, int32_t parts, int32_t part, Range local);

}  // namespace tessera
