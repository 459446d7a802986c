// Zigzag order of a sequence over N ranks of an axis: rank i holds pieces i
// and 2N-1-i of 2N, so that under a causal mask every rank has equally many
// pairs. Ranks hold as many tokens as in plain order (ALGEBRA rule 9).
#pragma once

#include <cstdint>
#include <vector>

#include "graph/sharding_spec.h"

namespace tessera {

// The logical ranges (one or two) of `local`, a range in the shard
// order of rank `part` of `parts`. Empty ranges are dropped.
std::vector<Range> zigzag_ranges(int64_t extent, int64_t unit, int32_t parts, int32_t part, Range local);

}  // namespace tessera
