// StrategyAxes: the mesh of a named strategy and the role of each
// axis. Only this table distinguishes the forms of tensor parallelism:
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
  std::vector<AxisId> batch;     // split the batch: data parallel, rows of a grid, experts
  std::vector<AxisId> features;  // split heads, columns, vocabulary; two in 3d
  std::vector<AxisId> spread;    // split weights beyond their kernels' needs
  std::vector<AxisId> zero;      // spread state (and more, by level)
  std::optional<AxisId> context;
  std::optional<AxisId> experts;  // also in `batch`
  // In addition to features[0] in 1d, if a model has fewer KV heads than parts: splits each head's queries,
  // while keys and values are replicated over it (ALGEBRA rule 4); everything else is split over both.
  std::optional<AxisId> group;
  std::optional<AxisId> wide;  // in `batch`; splits weights larger than their operands (owt)
  bool grid = false;           // 2d to 3d: activations are split along features

  bool swaps() const { return features.size() > 1; }  // 3d
  AxisId other(AxisId feature) const { return features[0] == feature ? features.back() : features[0]; }
};

// The mesh of one pipeline stage.
DeviceMesh make_mesh(const StrategySpec& spec, StrategyAxes& axes, const SharedHeads& shared);

}  // namespace tessera
