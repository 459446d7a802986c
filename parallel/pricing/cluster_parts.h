// Clusters with several kinds of devices as uniform parts: every combination of
// kinds, and each alone. A combined part has the speed of its slowest kind, the least
// memory and the slowest links; its devices may be of any of the kinds, in any order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"

namespace tessera {

// Fleet: clusters joined by their networks.
struct Fleet {
  std::vector<Cluster> clusters;
  int64_t devices() const;
};

// DeviceGroup: devices of one cluster that differ only in their kind's name.
struct DeviceGroup {
  std::string name;  // of their kind
  int64_t devices = 0;
  size_t cluster = 0;     // index among the joined clusters, equal ones merged
  bool one_node = false;  // it is a single node
};

struct ClusterPart {
  Cluster cluster;                  // of one kind
  std::vector<DeviceKind> members;  // the kinds it represents
  std::vector<size_t> groups;       // their groups
};

struct ClusterParts {
  std::vector<DeviceGroup> groups;
  // Fastest first, by devices and their rate in `dtype`. The order of
  // two parts is independent of other parts and of the order of kinds.
  std::vector<ClusterPart> parts;
};

// Clusters without a network are not joined.
// kUnsupported for too many groups to enumerate.
Result<ClusterParts> cluster_parts(const Fleet& fleet, DType dtype);

// "8 h100 + 8 a100-80gb".
std::string groups_text(const ClusterParts& parts, const std::vector<size_t>& groups);

}  // namespace tessera
