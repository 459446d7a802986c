// Factors of a dim of an operand, or of its dims, in an op's sharding rule; axes of a dim.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "graph/device_mesh.h"
#include "parallel/sharding/units.h"

namespace tessera {

inline bool contains(const std::vector<AxisId>& axes, AxisId axis) {
  return std::ranges::find(axes, axis) != axes.end();
}

// Whether one of the dims has the factor.
inline bool has(const ShardingRule::OperandDims& dims, char factor) {
  return std::ranges::any_of(dims,
                             [&](const std::string& dim) { return dim.find(factor) != std::string::npos; });
}

// The outermost factor of a dim with an extent above 1; null where there is none.
inline const Factor* major_of(const ShardingRule& rule, const std::string& dim) {
  const MajorFactor major = major_factor(rule, dim);
  return major.name == 0 ? nullptr : rule.find(major.name);
}

}  // namespace tessera
