// Cluster: the devices that a plan may use, as measured rates and limits;
// plain data. Its sources: runtime/ for present devices, presets
// (parallel/pricing/cluster_presets.h), and JSON files for absent hardware.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/base/dtype.h"

namespace tessera {

struct DeviceProfile;  // graph/device_profile.h

enum class Tier : uint8_t { kDevice = 0, kHost = 1, kFile = 2 };

// Sustained rate of large matmuls in one element type.
struct MatrixRate {
  DType dtype = DType::kF32;
  double flops_per_s = 0;
  friend bool operator==(const MatrixRate&, const MatrixRate&) = default;
};

struct DeviceKind {
  std::string name;               // "cpu", "h200"
  int64_t memory_bytes = 0;       // device memory that a plan may use
  double matmul_flops_per_s = 0;  // f32, large matmul
  double memory_bytes_per_s = 0;  // streaming
  double launch_s = 0;            // fixed cost of one kernel

  // Rates of other element types; unlisted types run at the f32 rate. Matmuls of 8-bit floats of any two
  // formats are listed as e4m3; if e4m3 is not listed, the device has no such matmuls.
  std::vector<MatrixRate> matrix_rates = {};

  // Rate by shape. A matmul is computed in tiles, `multiprocessors` at a time, so
  // that the last wave may be partly idle. Each tile costs as much as `tile_ramp`
  // more steps of the contracted dim, for filling and draining the pipeline.
  int32_t multiprocessors = 0;  // 0: any shape reaches the full rate
  double tile_ramp = 0;
  double batched_share = 1;  // fraction of the rate for batches of small matmuls (attention scores)

  // Host time to issue one kernel where kernels are issued one
  // by one (eager frameworks); the device is idle meanwhile.
  double issue_s = 0;

  // Device memory of contexts, communicators and workspaces, independent of the plan;
  // -1: unknown, estimated from the device's size (parallel/pricing/reserved_memory.h).
  int64_t reserved_bytes = -1;
  friend bool operator==(const DeviceKind&, const DeviceKind&) = default;
};

// The rate of large matmuls in the type, in operations per second.
inline double matrix_rate(const DeviceKind& kind, DType dtype) {
  for (const MatrixRate& rate : kind.matrix_rates)
    if (rate.dtype == dtype) return rate.flops_per_s;
  return kind.matmul_flops_per_s;
}

// Link: a collective that moves `bytes` per member around a ring takes latency_s * steps + bytes /
// bytes_per_s.
struct Link {
  double bytes_per_s = 0;
  double latency_s = 0;
  friend bool operator==(const Link&, const Link&) = default;
};

// GroupLink: a link for groups of one size. bytes_per_s is one member's rate on a ring, latency_s the fixed
// time of one whole collective.
struct GroupLink {
  int32_t members = 0;
  Link link;
  friend bool operator==(const GroupLink&, const GroupLink&) = default;
};

struct Cluster {
  std::vector<DeviceKind> kinds = {};
  std::vector<int32_t> devices = {};  // kind of each device; the devices of a node are consecutive
  // Number of cores that devices share (CPU virtual devices): with n busy devices each runs at
  // 1/n of the rate; for n below `shared_cores` prices interpolate. 0: each device has its own.
  int32_t shared_cores = 0;
  Link link;  // between any two devices (of one node)

  int32_t node_devices = 0;                // devices of one node; 0: all devices are in one
  std::vector<GroupLink> node_links = {};  // inside a node by group size, ascending; empty: `link` for all
  Link network;                            // out of one node, shared by all its devices; latency of one hop

  int64_t host_memory_bytes = 0;  // of one node
  Link host_link;                 // one device to its host's memory, each direction
  int64_t file_bytes = 0;         // of one node
  Link file_link;                 // one node to its files

  // Measured prices of the present devices, in place of the rates above; null:
  // none. Immutable, so that copies of a cluster share it; compared by identity.
  std::shared_ptr<const DeviceProfile> profile = nullptr;
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

}  // namespace tessera
