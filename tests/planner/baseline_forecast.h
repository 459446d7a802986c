// Predicted step times of other frameworks (Megatron-LM and the like): the composition of parallel/composition with their
// kernels and traits, compared with published times. Models: gpt2 with dropout, and llama.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/models/model_family.h"
#include "parallel/composition/step_profile.h"
#include "parallel/strategy/strategy.h"

namespace tessera::planner_test {

struct BaselineSoftware {
  bool fused_attention = false;  // scores stay on chip
  bool overlaps = false;         // gradients are reduced during the backward pass
  bool one_ring = false;         // gradients use one ring, whatever network cards a node has
  bool late_ranks = false;       // collectives of tensor parallelism take three times as long
  bool scatters_sends = false;   // each rank of tp sends its shard between stages
  DType compute = DType::kF16, gradients = DType::kF32;
};

struct BaselineStep {
  ModelConfig model;
  StrategySpec spec;
  bool selective = false;        // only attention is recomputed
  bool ends_are_blocks = false;  // stages count embedding and head as a block each
  int64_t batch = 0;
  BaselineSoftware software;
  int64_t micro_batches() const { return batch / (spec.micro_batch * spec.data()); }
};

// `parallel`: options of --parallel, the last of which may be recompute=selective.
Result<BaselineStep> parse_baseline_step(std::string_view model, std::string_view parallel, int64_t batch,
                             const BaselineSoftware& software);

// The profiles that composed_seconds takes: one for any number of blocks, and for any number of stages above one.
Result<std::vector<StepProfile>> profile_baseline(const BaselineStep& step, const Cluster& cluster);
Result<double> composed_seconds(const BaselineStep& step, const std::vector<StepProfile>& profiles,
                                const Cluster& cluster);

}  // namespace tessera::planner_test
