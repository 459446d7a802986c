#include "parallel/analytic/offload_time.h"

#include <algorithm>
#include <cmath>

namespace tessera {

int64_t host_share_bytes(const Cluster& cluster) {
  const auto devices = static_cast<int64_t>(cluster.devices.size());
  const int64_t sharing =
      cluster.node_devices > 0 ? std::min<int64_t>(cluster.node_devices, devices) : devices;
  return cluster.host_memory_bytes / std::max<int64_t>(1, sharing);
}

double waiting_seconds(const Cluster& cluster, double bytes, double pass_s) {
  if (bytes <= 0) return 0;
  if (cluster.host_link.bytes_per_s <= 0) return INFINITY;
  return std::max(0.0, bytes / cluster.host_link.bytes_per_s + cluster.host_link.latency_s - pass_s);
}

double offloaded_update_seconds(const ForeignPlan& plan, const Cluster& cluster, double parameters,
                                double update_s) {
  const double share = plan.offload_optimizer / 4.0;
  return waiting_seconds(cluster, share * parameters * optimizer_bytes(plan), update_s);
}

double optimizer_bytes(const ForeignPlan& plan) { return plan.compute_dtype == DType::kF32 ? 8 : 12; }

}  // namespace tessera
