// DeviceProfile: what one kind of device was measured to take, by shape. Plain data; made by `tessera
// calibrate`, read from a JSON file (serialize/device_profile_json.h), priced by
// parallel/pricing/profile_prices.h. More work is never cheaper: along every axis of every table seconds do
// not fall.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/base/dtype.h"
#include "graph/program.h"

namespace tessera {

// Seconds of one op on a grid. An axis is "bytes" (what the op reads and writes), or the factors of the op's
// rule whose extents are multiplied: "k", "ts"; "*" stands for all factors that no other axis names. Between
// marks it lies on straight lines, below the first it stays, beyond the last it grows in proportion.
struct PriceTable {
  std::string op;  // "matmul"; empty: any op without a table, by bytes
  std::string
      form;  // an attribute's value that the table is for: "trans_w=1"; empty: any. The first that fits
  DType dtype = DType::kF32;
  std::vector<std::string> axes;
  std::vector<std::vector<double>> marks;  // by axis, ascending
  std::vector<double> seconds;             // row-major, the last axis innermost
  // The same with one device on each of DeviceProfile::cores; empty where devices share nothing. Where
  // `seconds` are more, help from other cores costs more than it saves.
  std::vector<double> shared_seconds;
  friend bool operator==(const PriceTable&, const PriceTable&) = default;
};

// Seconds by bytes.
struct PriceCurve {
  std::vector<double> bytes, seconds;
  friend bool operator==(const PriceCurve&, const PriceCurve&) = default;
};

// By bytes of the group's whole tensor, from when the last member arrives.
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

// Which way of computing a kernel was the fastest when all were timed: `variant` for the question that
// runtime/kernel_description.h writes as `kernel`.
struct AlgorithmChoice {
  std::string kernel, variant;
  friend bool operator==(const AlgorithmChoice&, const AlgorithmChoice&) = default;
};
struct AlgorithmChoices {
  // Of the device, its libraries and the build that took the times (kernel_fingerprint): to any other the
  // choices mean nothing.
  uint64_t backend = 0;
  std::vector<AlgorithmChoice> choices;  // sorted by kernel, each once
  friend bool operator==(const AlgorithmChoices&, const AlgorithmChoices&) = default;
};

struct DeviceProfile {
  std::string device;  // DeviceKind::name of what was measured
  int32_t cores = 0;   // that devices share, all busy in `shared_seconds`; 0: devices share nothing
  double run_s = 0;    // of one run, beside its instructions
  // From the end of an instruction to the beginning of one on another stream that waits for it: with cores to
  // spare, and while every core computes, when whoever waits has to get one first.
  double handover_s = 0, busy_handover_s = 0;
  // What ranks that share cores lose to each other beside what their kernels do: everything takes so many
  // times as long with two or more of them, and with more than there are cores. At least 1.
  double together = 1, crowded = 1;
  std::vector<PriceTable> kernels;           // sorted by op, form and dtype
  std::vector<CollectivePrice> collectives;  // sorted by kind and members
  PriceCurve messages;                       // from one device to another
  std::vector<CopyPrice> copies;
  uint64_t checksum = 0;  // of the file it was read from or is written to, the algorithms aside
  AlgorithmChoices algorithms;

  bool empty() const { return kernels.empty(); }
  friend bool operator==(const DeviceProfile&, const DeviceProfile&) = default;
};

}  // namespace tessera
