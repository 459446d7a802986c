// Host tier of a cluster: host memory, which for CPU devices is device memory too. Offloading
// to it then saves nothing, so it counts as arena, and offloaded tensors go to a file.
#pragma once

#include <cstdint>

#include "graph/cluster.h"
#include "graph/program.h"

namespace tessera {

inline bool shares_host_memory(const Cluster& cluster) { return cluster.shared_cores > 0; }

// Destination of offloaded tensors.
inline Tier offload_tier(const Cluster& cluster) {
  return shares_host_memory(cluster) ? Tier::kFile : Tier::kHost;
}

// Bytes of a rank under the memory limit.
inline int64_t limited_bytes(const RankProgram& rank, const Cluster& cluster) {
  return rank.arena_bytes + (shares_host_memory(cluster) ? rank.host_arena_bytes : 0);
}

}  // namespace tessera
