// Host tier of a cluster: the host's memory, which for CPU devices is also the devices' own. Offloading to it then
// frees nothing, so it counts like the arena, and tensors to offload go to a file.
#pragma once

#include <cstdint>

#include "graph/cluster.h"
#include "graph/program.h"

namespace tessera {

inline bool shares_host_memory(const Cluster& cluster) { return cluster.shared_cores > 0; }

// Where the planner sends what leaves a device.
inline Tier offload_tier(const Cluster& cluster) {
  return shares_host_memory(cluster) ? Tier::kFile : Tier::kHost;
}

// Bytes of its device's memory that a rank takes, which a memory limit bounds.
inline int64_t limited_bytes(const RankProgram& rank, const Cluster& cluster) {
  return rank.arena_bytes + (shares_host_memory(cluster) ? rank.host_arena_bytes : 0);
}

}  // namespace tessera
