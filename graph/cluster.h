// Cluster: the devices a plan may use, as measured rates and limits. Plain data; made by runtime/ from the
// devices present, from a preset (parallel/pricing/cluster_presets.h), or read from a JSON file for hardware
// that is absent.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/base/dtype.h"

namespace tessera {

struct DeviceProfile;  // graph/device_profile.h

enum class Tier : uint8_t { kDevice = 0, kHost = 1, kFile = 2 };

// Sustained rate of large matrix products in one element type.
struct MatrixRate {
  DType dtype = DType::kF32;
  double flops_per_s = 0;
  friend bool operator==(const MatrixRate&, const MatrixRate&) = default;
};

struct DeviceKind {
  std::string name;               // "cpu", "h200"
  int64_t memory_bytes = 0;       // what a plan may use of it (device tier)
  double matmul_flops_per_s = 0;  // f32, large product
  double memory_bytes_per_s = 0;  // streaming
  double launch_s = 0;            // fixed cost of one kernel

  // Of other element types; those not listed run at the f32 rate. Products of 8-bit floats of any two formats
  // are listed as e4m3, and not computed at all where they are not.
  std::vector<MatrixRate> matrix_rates = {};

  // Rate by shape. A product is computed in tiles, `multiprocessors` at a time, so that the last wave may be
  // partly idle; each tile costs as much as `tile_ramp` more steps of the contracted dim (filling and
  // draining it).
  int32_t multiprocessors = 0;  // 0: any shape reaches the full rate
  double tile_ramp = 0;
  double batched_share = 1;  // part of the rate that batches of small products (attention scores) reach

  // Host time to issue one kernel where kernels are issued one by one (eager frameworks); devices wait for
  // it.
  double issue_s = 0;
  friend bool operator==(const DeviceKind&, const DeviceKind&) = default;
};

// Time of a collective over n members that moves `bytes` per member on a ring: latency_s * steps + bytes /
// rate.
struct Link {
  double bytes_per_s = 0;
  double latency_s = 0;
  friend bool operator==(const Link&, const Link&) = default;
};

// A link as groups of one size see it: what one member sends and receives on a ring, and the fixed time of
// one whole collective.
struct GroupLink {
  int32_t members = 0;
  Link link;
  friend bool operator==(const GroupLink&, const GroupLink&) = default;
};

struct Cluster {
  std::vector<DeviceKind> kinds = {};
  std::vector<int32_t> devices = {};  // kind of each device; those of a node are neighbours
  // Devices that share cores and bandwidth (CPU virtual devices): with n of them busy each runs at 1/n of the
  // rate, down from `shared_cores` on. 0 when devices share nothing.
  int32_t shared_cores = 0;
  Link link;  // between any two devices (of one node)

  int32_t node_devices = 0;                // devices of one node; 0: all devices are in one
  std::vector<GroupLink> node_links = {};  // inside a node by group size, ascending; empty: `link` for all
  Link network;  // out of one node, for all its devices together; latency of one hop

  int64_t host_memory_bytes = 0;  // of one node
  Link host_link;                 // one device to its host's memory, each direction
  int64_t file_bytes = 0;         // of one node
  Link file_link;                 // one node to its files

  // Measured prices of the devices at hand, in place of the rates above; null: none. Never changed, so that
  // copies of a cluster share it; compared by identity.
  std::shared_ptr<const DeviceProfile> profile = nullptr;
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

}  // namespace tessera
