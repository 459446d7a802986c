// Device limit: bytes of each device that plans may use. The one definition, for all searches.
#pragma once

#include <algorithm>
#include <cstdint>

#include "graph/cluster.h"

namespace tessera {

inline constexpr int64_t kNoLimit = INT64_MAX;

// `given` (an option), else the kind's memory; kNoLimit where neither is known.
inline int64_t device_limit(const DeviceKind& kind, int64_t given) {
  return given > 0 ? given : kind.memory_bytes > 0 ? kind.memory_bytes : kNoLimit;
}

// Likewise, of the smallest device.
inline int64_t device_limit(const Cluster& cluster, int64_t given) {
  int64_t limit = given > 0 ? given : kNoLimit;
  for (const int32_t kind : cluster.devices)
    limit = std::min(limit, device_limit(cluster.kinds[static_cast<size_t>(kind)], given));
  return limit;
}

}  // namespace tessera
