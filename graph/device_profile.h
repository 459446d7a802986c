// DeviceProfile: measured times of one kind of device, by shape; plain data. `tessera calibrate`
// measures it, a JSON file stores it (serialize/device_profile_json.h),
// parallel/pricing/profile_prices.h prices with it. Seconds never fall along any axis of any table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/base/dtype.h"
#include "graph/cluster.h"
#include "graph/program.h"

namespace tessera {

// PriceTable: seconds of one op on a grid. An axis is "bytes" (read and written by the op), or the factors of
// the op's rule whose extents are multiplied: "k", "ts"; "*" stands for all factors that no other axis names.
// Interpolation is linear between marks, constant below the first, and proportional beyond the last.
struct PriceTable {
  std::string op;  // "matmul"; empty: any op without a table, by bytes
  std::string
      form;  // value of an attribute that the table is for: "trans_w=1"; empty: any. The first match counts
  DType dtype = DType::kF32;
  std::vector<std::string> axes;
  std::vector<std::vector<double>> marks;  // by axis, ascending
  std::vector<double> seconds;             // row-major, the last axis innermost
  // Seconds with one device on each of DeviceProfile::cores; empty where devices share
  // nothing. Where `seconds` are larger, the help of other cores costs more than it saves.
  std::vector<double> shared_seconds;
  friend bool operator==(const PriceTable&, const PriceTable&) = default;
};

// Seconds by bytes.
struct PriceCurve {
  std::vector<double> bytes, seconds;
  friend bool operator==(const PriceCurve&, const PriceCurve&) = default;
};

// Seconds by bytes of the group's whole tensor, from the arrival of the last member.
struct CollectivePrice {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int32_t members = 2;
  PriceCurve curve;
  friend bool operator==(const CollectivePrice&, const CollectivePrice&) = default;
};

struct CopyPrice {
  Tier from = Tier::kDevice, to = Tier::kDevice;
  PriceCurve curve;
  friend bool operator==(const CopyPrice&, const CopyPrice&) = default;
};

// AlgorithmChoice: the fastest variant of a kernel when all were timed.
// `kernel` is the query in the text form of runtime/kernel_description.h.
struct AlgorithmChoice {
  std::string kernel, variant;
  friend bool operator==(const AlgorithmChoice&, const AlgorithmChoice&) = default;
};
struct AlgorithmChoices {
  // Fingerprint of the device, its libraries and the timed build
  // (kernel_fingerprint): for any other the choices are void.
  uint64_t backend = 0;
  std::vector<AlgorithmChoice> choices;  // sorted by kernel, each once
  friend bool operator==(const AlgorithmChoices&, const AlgorithmChoices&) = default;
};

struct DeviceProfile {
  std::string device;  // DeviceKind::name of the measured device
  int32_t cores = 0;   // shared by devices, all busy in `shared_seconds`; 0: devices share nothing
  double run_s = 0;    // fixed time of one run, in addition to its instructions
  // From the end of an instruction to the start of its dependent on another stream: with
  // spare cores, and while every core computes, when the waiting thread has to get one first.
  double stream_switch_s = 0, busy_stream_switch_s = 0;
  // Slowdown of ranks that share cores, in addition to that of their kernels: factors on all times with two or more
  // ranks, and with more ranks than cores. At least 1.
  double contention = 1, oversubscription = 1;
  // Share of the cores' time that other processes took during the measurement, where above 10 %:
  // prices are too high then, and uneven.
  double others_share = 0;
  std::vector<PriceTable> kernels;           // sorted by op, form and dtype
  std::vector<CollectivePrice> collectives;  // sorted by kind and members
  PriceCurve messages;                       // from one device to another
  std::vector<CopyPrice> copies;
  Link network;  // between machines, as Cluster::network; rate 0: not measured
  uint64_t checksum = 0;  // of its file, without the algorithms
  AlgorithmChoices algorithms;

  bool empty() const { return kernels.empty(); }
  friend bool operator==(const DeviceProfile&, const DeviceProfile&) = default;
};

}  // namespace tessera
