#include "parallel/pricing/check_cluster.h"

#include <initializer_list>
#include <string_view>
#include <utility>

#include "graph/base/text.h"

namespace tessera {

namespace {

// Limits beyond any machine, far from overflow.
constexpr double kMostRate = 1e30, kMostSeconds = 1e6;
constexpr int64_t kMostBytes = int64_t{1} << 60;

using Named = std::pair<std::string_view, double>;

Status check_values(std::string_view where, std::initializer_list<Named> values, double most) {
  for (const auto& [name, value] : values)
    if (!(value >= 0 && value <= most))
      return Status(StatusCode::kInvalidArgument,
                    format("{} has {} = {}, wanted a number from 0 to {}", where, name, value, most));
  return {};
}

Status check_link(std::string_view name, const Link& link) {
  TSR_RETURN_IF_ERROR(check_values(name, {{"bytes_per_s", link.bytes_per_s}}, kMostRate));
  return check_values(name, {{"latency_s", link.latency_s}}, kMostSeconds);
}

Status check_kind(const DeviceKind& kind) {
  const std::string where = format("device kind '{}'", kind.name);
  TSR_RETURN_IF_ERROR(check_values(where,
                                   {{"matmul_flops_per_s", kind.matmul_flops_per_s},
                                    {"memory_bytes_per_s", kind.memory_bytes_per_s},
                                    {"tile_ramp", kind.tile_ramp},
                                    {"batched_share", kind.batched_share}},
                                   kMostRate));
  for (const MatrixRate& rate : kind.matrix_rates)
    TSR_RETURN_IF_ERROR(check_values(where, {{info(rate.dtype).name, rate.flops_per_s}}, kMostRate));
  TSR_RETURN_IF_ERROR(
      check_values(where, {{"launch_s", kind.launch_s}, {"issue_s", kind.issue_s}}, kMostSeconds));
  if (kind.memory_bytes < 0 || kind.memory_bytes > kMostBytes)
    return Status(StatusCode::kInvalidArgument,
                  format("{} has memory_bytes = {}, wanted 0 to {}", where, kind.memory_bytes, kMostBytes));
  return {};
}

}  // namespace

Status check_cluster(const Cluster& cluster) {
  if (cluster.devices.empty())
    return Status(StatusCode::kInvalidArgument,
                  "the cluster has no devices to plan for, wanted at least one");
  for (size_t device = 0; device < cluster.devices.size(); ++device)
    if (const int32_t kind = cluster.devices[device];
        kind < 0 || static_cast<size_t>(kind) >= cluster.kinds.size())
      return Status(
          StatusCode::kInvalidArgument,
          format("device {} is of kind {}, the cluster lists {} kinds", device, kind, cluster.kinds.size()));
  for (const DeviceKind& kind : cluster.kinds) TSR_RETURN_IF_ERROR(check_kind(kind));
  TSR_RETURN_IF_ERROR(check_link("link", cluster.link));
  TSR_RETURN_IF_ERROR(check_link("network", cluster.network));
  TSR_RETURN_IF_ERROR(check_link("host_link", cluster.host_link));
  TSR_RETURN_IF_ERROR(check_link("file_link", cluster.file_link));
  for (const GroupLink& group : cluster.node_links)
    TSR_RETURN_IF_ERROR(check_link(format("link of {} members", group.members), group.link));
  if (cluster.node_devices < 0 || cluster.shared_cores < 0)
    return Status(StatusCode::kInvalidArgument,
                  format("found node_devices = {} and shared_cores = {}, wanted 0 or more",
                         cluster.node_devices, cluster.shared_cores));
  return {};
}

}  // namespace tessera
