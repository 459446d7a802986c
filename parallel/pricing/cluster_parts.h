// Clusters whose devices are of several kinds, as parts whose devices are all alike: every choice of kinds,
// each of them alone among these. A part of several kinds stands for devices as slow as the slowest of them,
// with the least memory and the slowest links; its devices may be of any of the kinds, in any order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"

namespace tessera {

// Clusters side by side, joined by their networks.
struct Fleet {
  std::vector<Cluster> clusters;
  int64_t devices() const;
};

// Devices of one cluster that are alike but for the name of their kind.
struct DeviceGroup {
  std::string name;  // of their kind
  int64_t devices = 0;
  size_t cluster = 0;     // of those side by side, but for names
  bool one_node = false;  // all that this cluster has is one
};

struct ClusterPart {
  Cluster cluster;                  // of one kind
  std::vector<DeviceKind> members;  // that it stands for
  std::vector<size_t> groups;       // of these
};

struct ClusterParts {
  std::vector<DeviceGroup> groups;
  // The fastest first, by devices and their rate in `dtype`. The order of two parts does not depend on which
  // others there are, nor on the order in which kinds are listed.
  std::vector<ClusterPart> parts;
};

// Clusters without a network are joined to none. kUnsupported for more groups than choices can be gone
// through.
Result<ClusterParts> cluster_parts(const Fleet& fleet, DType dtype);

// "8 h100 + 8 a100-80gb".
std::string groups_text(const ClusterParts& parts, const std::vector<size_t>& groups);

}  // namespace tessera
