// StrategyAxes: the mesh of a named strategy and what each of its axes is for. This table is all that tells
// the forms of tensor parallelism apart:
//
//   form       rows of the batch   features                                weights are stored over, too
//   1d         -                   tp                                      -
//   2d, 2.5d   x (2.5d: x, z)      y                                       x
//   3d         x and one of y, z   the other, changing at every product    x
#pragma once

#include <optional>
#include <vector>

#include "graph/device_mesh.h"
#include "parallel/sharding/units.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

struct StrategyAxes {
  std::vector<AxisId> batch;     // split the batch everywhere: data parallel, rows of a grid, experts
  std::vector<AxisId> features;  // split heads, columns, vocabulary; two in 3d
  std::vector<AxisId> spread;    // of a weight, beyond what its kernels want
  std::vector<AxisId> zero;      // state (and more, by level) is spread over these
  std::optional<AxisId> context;
  std::optional<AxisId> experts;  // in `batch`, too
  // Beside features[0] in 1d where a model has fewer KV heads than parts: each head's queries lie on it, its
  // keys and values are on all of its ranks (ALGEBRA rule 4); everything else is split over both.
  std::optional<AxisId> group;
  std::optional<AxisId> wide;  // in `batch`; weights larger than what they are applied to take it (owt)
  bool grid = false;           // 2d to 3d: activations lie split along their features

  bool swaps() const { return features.size() > 1; }  // 3d
  AxisId other(AxisId feature) const { return features[0] == feature ? features.back() : features[0]; }
};

// The mesh of one pipeline stage.
DeviceMesh make_mesh(const StrategySpec& spec, StrategyAxes& axes, const SharedHeads& shared);

}  // namespace tessera
