// Products of 8-bit floats in the linear layers of blocks (dtype=fp8), as graph/transform/precision.h
// makes them: which layers, and on which devices. What they and their scales take is part of block_time.
#pragma once

#include <span>

#include "graph/base/status.h"
#include "graph/cluster.h"
#include "parallel/analytic/foreign_plan.h"
#include "parallel/analytic/transformer.h"

namespace tessera {

// The linear layers of a block that multiply numbers of 8 bits: all that are no experts' and whose weight has
// extents that are multiples of 16. `up` has the gate beside it where it is gated.
struct Fp8Linears {
  bool qkv = false, o = false, up = false, down = false, gated = false;
  bool any() const { return qkv || o || up || down; }
  // Weights whose columns tp cuts, and whose rows.
  int32_t columns() const { return 3 * qkv + (gated ? 2 : 1) * up; }
  int32_t rows() const { return o + down; }
};
Fp8Linears fp8_linears(const TransformerShape& model, const ForeignPlan& plan);

// Of every plan but those with dtype=fp8 nothing is asked. kUnsupported for a device whose kind lists no rate
// of e4m3, and for grids; kInvalidArgument where no layer has fitting extents.
Status check_fp8_linears(const TransformerShape& model, const ForeignPlan& plan,
                         std::span<const Cluster> clusters);

}  // namespace tessera
