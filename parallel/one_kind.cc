#include "parallel/one_kind.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera {

namespace {

const DeviceKind& kind_of(const Cluster& cluster, size_t device) {
  return cluster.kinds[static_cast<size_t>(cluster.devices[device])];
}

bool alike(DeviceKind a, const DeviceKind& b) {
  a.name = b.name;
  return a == b;
}

Status check_kinds(const Cluster& cluster) {
  for (size_t device = 0; device < cluster.devices.size(); ++device) {
    const int32_t kind = cluster.devices[device];
    if (kind < 0 || static_cast<size_t>(kind) >= cluster.kinds.size())
      return Status(
          StatusCode::kInvalidArgument,
          format("device {} is of kind {}, the cluster lists {} kinds", device, kind, cluster.kinds.size()));
  }
  for (size_t device = 1; device < cluster.devices.size(); ++device) {
    const DeviceKind &first = kind_of(cluster, 0), &it = kind_of(cluster, device);
    if (alike(first, it)) continue;
    const auto others = std::ranges::count_if(cluster.devices, [&](int32_t kind) {
      return !alike(first, cluster.kinds[static_cast<size_t>(kind)]);
    });
    return Status(
        StatusCode::kUnsupported,
        format("device 0 is a '{}' and device {} a '{}': plans are for devices of one kind; give "
               "the {} of the first kind or the {} others",
               first.name, device, it.name, static_cast<int64_t>(cluster.devices.size()) - others, others));
  }
  return {};
}

}  // namespace

Result<Cluster> of_one_kind(const Cluster& cluster) {
  TSR_RETURN_IF_ERROR(check_kinds(cluster));
  Cluster one = cluster;
  if (one.devices.empty()) return one;
  one.kinds = {kind_of(cluster, 0)};
  std::ranges::fill(one.devices, 0);
  return one;
}

}  // namespace tessera
