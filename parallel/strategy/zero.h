// Spreading stored tensors over further axes (ZeRO, sharded optimizer state).
#pragma once

#include <span>

#include "graph/base/shape.h"
#include "graph/sharding_spec.h"

namespace tessera {

// `spec` with `axes` appended to one dim, so that the largest shard is as small as can be and no shard is
// empty; of equally good dims the first (its pieces are contiguous). Unchanged where no dim has enough units:
// such tensors are small and stay whole. Block types are cut in whole blocks. `preferred` is the dim to take
// where it has enough units.
ShardingSpec spread(const ShardingSpec& spec, std::span<const AxisId> axes, const TensorType& type,
                    const DeviceMesh& mesh, int preferred = -1);

}  // namespace tessera
