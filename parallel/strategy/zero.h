// Spreads stored tensors over further axes (ZeRO, sharded optimizer state).
#pragma once

#include <span>

#include "graph/base/shape.h"
#include "graph/sharding_spec.h"

namespace tessera {

// Appends `axes` to one dim of `spec`, with the smallest largest shard and
// no empty one; ties: the first dim (its pieces are contiguous). Unchanged
// if no dim has enough units: such tensors are small. Quantized types are
// cut in whole blocks. `preferred`: the dim to use if it has enough units.
ShardingSpec spread(const ShardingSpec& spec, std::span<const AxisId> axes, const TensorType& type,
                    const DeviceMesh& mesh, int preferred = -1);

}  // namespace tessera
