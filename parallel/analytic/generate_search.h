// The best way to serve: latency (a given number of sequences, all their tokens soonest) or throughput (most
// new tokens a second, with as many sequences as pay and fit). Every mesh is looked at; batches between two
// that are known cannot do more than the larger one would in the time of the smaller, so halving proves the
// best.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/analytic/generate_time.h"

namespace tessera {

struct GenerateOptions {
  GenerateWork work;
  bool throughput = false;
  int64_t batch = 0;         // sequences in all; 0: one for latency, as many as pay for throughput
  int64_t memory_limit = 0;  // bytes a device; 0: the kind's
  int64_t kv_budget = 0;     // bytes of keys and values a device; 0: what is left
  std::optional<int32_t> tp, pp, dp;
  std::optional<int64_t> replica_batch, prefill_batch;  // of GeneratePlan
  size_t runners_up = 5;
};

struct FoundGenerate {
  GeneratePlan plan;
  GenerateTime time;
};

struct GenerateResult {
  FoundGenerate best;
  std::vector<FoundGenerate> runners_up;  // of other meshes
  // No plan of the space has a lower latency, or a higher throughput; and by how much at most, as a share.
  double bound = 0, gap = 0;
  int64_t priced = 0, meshes = 0;
  // Of a cluster of several kinds: what is used and what stays idle ("8 h100"), and the cluster of one kind
  // that the plan is priced on (analytic/cluster_parts).
  std::string used, idle;
  std::optional<Cluster> part;
};

// Every mesh of tp and pp that `devices` allow and the pins keep, with the numbers of replicas that matter.
// kOutOfMemory when nothing fits: names what fills the device, the smallest limit that works and the smallest
// number of devices (nothing_fits_generate).
Result<GenerateResult> search_generate(const TransformerShape& model, const Cluster& cluster,
                                       const GenerateOptions& options);

}  // namespace tessera
