// DeviceMesh: devices (ranks) arranged over named axes, row-major: the last axis varies fastest.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

using AxisId = uint8_t;  // index into DeviceMesh::axes

struct MeshAxis {
  std::string name;  // "dp", "tp"
  int32_t size = 1;
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

struct DeviceMesh {
  std::vector<MeshAxis> axes;    // an empty mesh is one device
  std::vector<int32_t> devices;  // rank ids, row-major over axes; size() entries

  int32_t size() const;
  std::optional<AxisId> find_axis(std::string_view name) const;
  int32_t axis_size(AxisId axis) const { return axes[axis].size; }
  std::vector<int32_t> coordinates(int32_t position) const;  // position in `devices` -> one coordinate per axis

  // Positions (indices into `devices`) of the group that `position` belongs to over `group_axes`, in row-major
  // order, the first listed axis major. A reduction over several axes is one collective over this product group.
  std::vector<int32_t> group(int32_t position, std::span<const AxisId> group_axes) const;

  friend bool operator==(const DeviceMesh&, const DeviceMesh&) = default;
};

// "dp=2, tp=4" -> axes with devices 0..7. Axes of size 1 are kept: names in a plan stay valid.
Result<DeviceMesh> parse_mesh(std::string_view text);
std::string to_text(const DeviceMesh& mesh);

}  // namespace tessera
