// Search for the best generation plan: latency (given sequences, soonest completion)
// or throughput (most new tokens per second, with as many sequences as pay and fit).
//
// The space: every tp that divides the heads, every pp up to the block count, replicas on all devices or fewer,
// prompts read at a time in powers of two, or all of a given batch; for throughput, batches that fill every pipeline
// group equally. The bound holds where a step with more sequences is never faster: batches between two priced sizes
// serve at most the larger one in the time of the smaller; such intervals are bisected until none can be better.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parallel/planner/generation_prices.h"
#include "parallel/pricing/device_limit.h"

namespace tessera {

struct GenerationOptions {
  GenerationWork work;
  bool throughput = false;
  int64_t context = 0;       // longest sequence of the model; 0: unlimited
  int64_t batch = 0;         // total sequences; 0: one for latency, as many as pay for throughput
  int64_t memory_limit = 0;  // bytes per device; 0: the kind's
  int64_t kv_budget = 0;     // bytes of keys and values per device; 0: the rest
  std::optional<int32_t> tp, pp, dp;
  std::optional<int64_t> replica_batch, prefill_batch;  // overrides of GenerationPlan
  size_t runners_up = 5;

  int64_t limit(const Cluster& cluster) const { return device_limit(cluster, memory_limit); }
};

// kInvalidArgument for a text longer than the context, and for an impossible number of tokens.
Status check_request(const GenerationOptions& options);

struct FoundGeneration {
  GenerationPlan plan;
  GenerationTime time;
};

struct GenerationResult {
  FoundGeneration best;
  std::vector<FoundGeneration> runners_up;  // of other meshes
  double bound = 0,
         gap = 0;  // tokens per second, or seconds per request, that no searched plan beats; and the gap as a share
  int64_t priced = 0, meshes = 0;
  std::string used, idle;  // for several parts: "8 h100"
  size_t part = 0;         // index of the chosen part
};

// kOutOfMemory if nothing fits: names the peak's contents, the smallest sufficient limit and device count.
Result<GenerationResult> search_generation(GenerationPrices& prices, const GenerationOptions& options);

// For several parts: the best one's plan; the others are idle.
Result<GenerationResult> search_generation(std::vector<GenerationPrices>& parts,
                                           const GenerationOptions& options);

}  // namespace tessera
