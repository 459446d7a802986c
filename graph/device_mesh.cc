#include "graph/device_mesh.h"

#include <algorithm>
#include <numeric>

#include "graph/base/text.h"

namespace tessera {

namespace {

// Row-major position of `coordinates`.
int32_t position_of(const DeviceMesh& mesh, std::span<const int32_t> coordinates) {
  int32_t position = 0;
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis)
    position = position * mesh.axes[axis].size + coordinates[axis];
  return position;
}

bool is_identifier(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && letter(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

constexpr int64_t kMaxDevices = 1 << 20;
constexpr size_t kMaxAxes = 32;

}  // namespace

int32_t DeviceMesh::size() const {
  int32_t product = 1;
  for (const MeshAxis& axis : axes) product *= axis.size;
  return product;
}

std::optional<AxisId> DeviceMesh::find_axis(std::string_view name) const {
  for (size_t axis = 0; axis < axes.size(); ++axis)
    if (axes[axis].name == name) return static_cast<AxisId>(axis);
  return std::nullopt;
}

std::vector<int32_t> DeviceMesh::coordinates(int32_t position) const {
  TSR_CHECK(position >= 0 && position < size(), "position outside of the mesh");
  std::vector<int32_t> coordinates(axes.size());
  for (size_t axis = axes.size(); axis-- > 0;) {
    coordinates[axis] = position % axes[axis].size;
    position /= axes[axis].size;
  }
  return coordinates;
}

std::vector<int32_t> DeviceMesh::group(int32_t position, std::span<const AxisId> group_axes) const {
  std::vector<int32_t> at = coordinates(position);
  int32_t count = 1;
  for (AxisId axis : group_axes) count *= axis_size(axis);
  std::vector<int32_t> members;
  members.reserve(static_cast<size_t>(count));
  for (int32_t member = 0; member < count; ++member) {
    int32_t rest = member;
    for (size_t i = group_axes.size(); i-- > 0;) {
      at[group_axes[i]] = rest % axis_size(group_axes[i]);
      rest /= axis_size(group_axes[i]);
    }
    members.push_back(position_of(*this, at));
  }
  return members;
}

Result<DeviceMesh> parse_mesh(std::string_view text) {
  DeviceMesh mesh;
  std::string_view axes_text = trim(text);
  std::string_view devices_text;
  if (const size_t on = axes_text.find("on ["); on != std::string_view::npos) {
    devices_text = axes_text.substr(on + 4);
    axes_text = trim(axes_text.substr(0, on));
    if (devices_text.empty() || devices_text.back() != ']')
      return Status(StatusCode::kInvalidArgument,
                    format("mesh '{}': the device list wants a closing ']'", text));
    devices_text.remove_suffix(1);
  }
  int64_t size = 1;
  for (const std::string& part : split(axes_text, ',')) {
    const size_t equals = part.find('=');
    const std::string_view name = trim(std::string_view(part).substr(0, equals));
    const int64_t extent = equals == std::string::npos
                               ? 0
                               : parse_i64(trim(std::string_view(part).substr(equals + 1))).value_or(0);
    if (!is_identifier(name) || extent < 1 || extent > kMaxDevices)
      return Status(StatusCode::kInvalidArgument,
                    format("mesh '{}': found '{}', wanted name=size with size >= 1, as in \"dp=2, tp=4\"",
                           text, trim(part)));
    if (mesh.find_axis(name))
      return Status(StatusCode::kInvalidArgument, format("mesh '{}': axis '{}' appears twice", text, name));
    size *= extent;
    if (size > kMaxDevices || mesh.axes.size() == kMaxAxes)
      return Status(StatusCode::kInvalidArgument,
                    format("mesh '{}' has more than {} devices or {} axes", text, kMaxDevices, kMaxAxes));
    mesh.axes.push_back({std::string(name), static_cast<int32_t>(extent)});
  }
  mesh.devices.resize(static_cast<size_t>(size));
  std::iota(mesh.devices.begin(), mesh.devices.end(), 0);
  if (devices_text.empty()) return mesh;

  const std::vector<std::string> listed = split(devices_text, ',');
  if (listed.size() != mesh.devices.size())
    return Status(StatusCode::kInvalidArgument, format("mesh '{}' lists {} devices, its axes make {}", text,
                                                       listed.size(), mesh.devices.size()));
  for (size_t i = 0; i < listed.size(); ++i) {
    const auto device = parse_i64(trim(listed[i]));
    if (!device || *device < 0 || *device > kMaxDevices)
      return Status(StatusCode::kInvalidArgument,
                    format("mesh '{}': '{}' is not a device", text, trim(listed[i])));
    mesh.devices[i] = static_cast<int32_t>(*device);
  }
  return mesh;
}

std::string to_text(const DeviceMesh& mesh) {
  std::vector<std::string> parts;
  for (const MeshAxis& axis : mesh.axes) parts.push_back(format("{}={}", axis.name, axis.size));
  std::string text = join(parts, ", ");
  // Devices 0, 1, 2, … are omitted; all others are written.
  bool counted = true;
  for (size_t i = 0; i < mesh.devices.size(); ++i) counted &= mesh.devices[i] == static_cast<int32_t>(i);
  if (counted) return text;
  parts.clear();
  for (int32_t device : mesh.devices) parts.push_back(to_text(device));
  return text + (text.empty() ? "" : " ") + "on [" + join(parts, ", ") + "]";
}

}  // namespace tessera
