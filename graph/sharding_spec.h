// ShardingSpec: the layout of one tensor on a mesh. Per tensor dim an ordered list of axes (major to minor)
// that split it, plus the axes along which the value is only one addend ("partial"); along every other axis
// it is replicated. Prints {[dp], [sp, tp]} partial(sum: ep).
//
// Splits nest: each axis of the list divides the chunk left by the previous one, in whole units, larger parts
// first. Only the last axis of a dim can be gathered, scattered onto or exchanged.
//
// An owner: a dim in one unit, all of it, lies on one part alone, and the other parts are empty. `first` says which.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/base/shape.h"
#include "graph/device_mesh.h"
#include "graph/sharding_rule.h"

namespace tessera {

struct DimSharding {
  std::vector<AxisId> axes;
  int64_t unit = 1;  // shards are whole multiples of it (head size, KV-group size); 1 when `axes` is empty
  int32_t first = 0;  // the first of the larger parts, counted row-major over `axes`
  friend bool operator==(const DimSharding&, const DimSharding&) = default;
  friend auto operator<=>(const DimSharding&, const DimSharding&) = default;
};

// Returns whether one part, the owner, has the whole of a dim of the extent, and all others are empty.
inline bool has_owner(const DimSharding& dim, int64_t extent) {
  return !dim.axes.empty() && dim.unit == extent;
}

struct ShardingSpec {
  std::vector<DimSharding> dims;  // one per tensor dim
  std::vector<AxisId> partial;    // sorted
  ReduceKind reduce = ReduceKind::kSum;  // how addends along `partial` combine

  static ShardingSpec replicated(int rank) { return ShardingSpec{std::vector<DimSharding>(static_cast<size_t>(rank)), {}, ReduceKind::kSum}; }
  bool uses(AxisId axis) const;          // as a split of a dim, or as partial
  friend bool operator==(const ShardingSpec&, const ShardingSpec&) = default;
  friend auto operator<=>(const ShardingSpec&, const ShardingSpec&) = default;
};

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// A box of a global tensor, one range per dim.
using Box = std::vector<Range>;

// Returns part `part` of `parts` when `extent` is split in whole units, the larger parts from
// part `first` on (after the last part comes part 0). Parts tile `whole` in ascending order.
Range split_range(Range whole, int64_t unit, int32_t parts, int32_t part, int32_t first = 0);

// All parts of a dim of the extent, in ascending order.
std::vector<Range> split_ranges(int64_t extent, const DimSharding& dim, const DeviceMesh& mesh);

Range local_range(int64_t extent, const DimSharding& dim, const DeviceMesh& mesh, std::span<const int32_t> coordinates);
Box local_box(const Shape& global, const ShardingSpec& spec, const DeviceMesh& mesh, std::span<const int32_t> coordinates);
Shape local_shape(const Shape& global, const ShardingSpec& spec, const DeviceMesh& mesh, std::span<const int32_t> coordinates);

// Checks that axes exist and appear once, dims match the shape's rank, units divide extents.
Status validate(const ShardingSpec& spec, const Shape& global, const DeviceMesh& mesh);

std::string to_text(const ShardingSpec& spec, const DeviceMesh& mesh);
Result<ShardingSpec> parse_spec(std::string_view text, const DeviceMesh& mesh);

}  // namespace tessera
