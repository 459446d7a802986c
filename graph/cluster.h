// Cluster: the devices a plan may use, as measured rates and limits. Plain data; made by runtime/ from the devices
// present, or read from a JSON file for hardware that is absent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/base/dtype.h"

namespace tessera {

enum class Tier : uint8_t { kDevice = 0, kHost = 1, kFile = 2 };

struct DeviceKind {
  std::string name;                 // "cpu", "h200"
  int64_t memory_bytes = 0;         // what a plan may use of it (device tier)
  double matmul_flops_per_s = 0;    // f32, large product
  double memory_bytes_per_s = 0;    // streaming
  double launch_s = 0;              // fixed cost of one kernel
};

// Time of a collective over n members that moves `bytes` per member on a ring: latency_s * steps + bytes / rate.
struct Link {
  double bytes_per_s = 0;
  double latency_s = 0;
};

struct Cluster {
  std::vector<DeviceKind> kinds;
  std::vector<int32_t> devices;  // kind of each device
  // Devices that share cores and bandwidth (CPU virtual devices): with n of them busy each runs at 1/n of the rate,
  // down from `shared_cores` on. 0 when devices share nothing.
  int32_t shared_cores = 0;
  Link link;  // between any two devices
};

}  // namespace tessera
