// The best way to generate text: latency (a given number of sequences, all their tokens soonest) or throughput (most new tokens
// a second, with as many sequences as pay and fit).
//
// The searched space: every tp that heads divide into, every pp up to the number of blocks, replicas on all devices or fewer,
// prompts read at a time in powers of two, or all of a given batch; for throughput batches that fill every group of a pipeline with equally many sequences.
// The bound holds in this space where a step never takes less time with more sequences: batches between two whose steps
// are priced serve at most the larger one in the time of the smaller, and such intervals are halved until none can be better.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "parallel/planner/generation_prices.h"

namespace tessera {

struct GenerationOptions {
  GenerationWork work;
  bool throughput = false;
  int64_t context = 0;       // tokens that the model's sequences may have; 0: any number
  int64_t batch = 0;         // sequences in all; 0: one for latency, as many as pay for throughput
  int64_t memory_limit = 0;  // bytes a device; 0: the kind's
  int64_t kv_budget = 0;     // bytes of keys and values a device; 0: what is left
  std::optional<int32_t> tp, pp, dp;
  std::optional<int64_t> replica_batch, prefill_batch;  // of GenerationPlan
  size_t runners_up = 5;

  int64_t limit(const Cluster& cluster) const {
    return memory_limit > 0 ? memory_limit : cluster.kinds[0].memory_bytes;
  }
};

// kInvalidArgument for a text longer than the context, and for more tokens than any memory holds.
Status check_request(const GenerationOptions& options);

struct FoundGeneration {
  GenerationPlan plan;
  GenerationTime time;
};

struct GenerationResult {
  FoundGeneration best;
  std::vector<FoundGeneration> runners_up;  // of other meshes
  double bound = 0,
         gap = 0;  // tokens a second, or seconds of a request: nothing searched is better; the gap as a share
  int64_t priced = 0, meshes = 0;
  std::string used, idle;  // of several parts: "8 h100"
  size_t part = 0;         // of those given
};

// kOutOfMemory when nothing fits: names what fills the device, the smallest limit that works and the smallest number of devices.
Result<GenerationResult> search_generation(GenerationPrices& prices, const GenerationOptions& options);

// Of several parts the best one's plan; the others are idle.
Result<GenerationResult> search_generation(std::vector<GenerationPrices>& parts,
                                           const GenerationOptions& options);

}  // namespace tessera
