#include "parallel/strategy/zero.h"

#include <algorithm>

#include "parallel/sharding/reshard.h"

namespace tessera {

namespace {

// Smallest and largest chunk of a dim.
std::pair<int64_t, int64_t> chunk_sizes(int64_t extent, const DimSharding& dim, const DeviceMesh& mesh) {
  std::pair<int64_t, int64_t> sizes{extent, 0};
  for (const Range& range : split_ranges(extent, dim, mesh)) {
    sizes.first = std::min(sizes.first, range.size());
    sizes.second = std::max(sizes.second, range.size());
  }
  return sizes;
}

}  // namespace

ShardingSpec spread(const ShardingSpec& spec, std::span<const AxisId> axes, const TensorType& type,
                    const DeviceMesh& mesh, int preferred) {
  if (axes.empty()) return spec;
  const Shape& shape = type.shape;
  ShardingSpec best = spec;
  double best_share = 2;  // largest shard of the dim, relative to the unsplit one
  for (int d = 0; d < shape.rank(); ++d) {
    const DimSharding& old = spec.dims[static_cast<size_t>(d)];
    const int64_t before = chunk_sizes(shape[d], old, mesh).second;
    const int64_t least_unit = d == shape.rank() - 1 ? info(type.dtype).block_elements : 1;
    for (const int64_t unit : {least_unit, std::max(least_unit, old.unit)}) {
      ShardingSpec prefix = spec;
      if (!old.axes.empty()) prefix.dims[static_cast<size_t>(d)].unit = unit;
      if (!same_layout(prefix, spec, shape, mesh)) continue;
      ShardingSpec candidate = spec;
      DimSharding& dim = candidate.dims[static_cast<size_t>(d)];
      dim.unit = unit;
      dim.axes.insert(dim.axes.end(), axes.begin(), axes.end());
      const auto [least, most] = chunk_sizes(shape[d], dim, mesh);
      if (least < unit) continue;
      const double share = d == preferred ? 0 : static_cast<double>(most) / static_cast<double>(before);
      if (share >= best_share) continue;
      best_share = share;
      best = std::move(candidate);
    }
  }
  return best;
}

}  // namespace tessera
