// Steps of other people's software, composed as this library composes its own and with their traits: for comparison with
// published times. Models are gpt2's, trained with dropout, and llamas.
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

struct OtherSoftware {
  bool fused_attention = false;  // scores stay on chip
  bool overlaps = false;         // gradients are reduced beside the backward pass
  bool one_ring = false;         // gradients go round one ring, whatever network cards a node has
  bool late_ranks = false;       // collectives of tensor parallelism take three times as long
  bool scatters_sends = false;   // each rank of tp sends its part between stages
  DType compute = DType::kF16, gradients = DType::kF32;
};

struct OtherStep {
  ModelConfig model;
  StrategySpec spec;
  bool selective = false;        // attention alone is computed again
  bool ends_are_blocks = false;  // stages count embedding and head as a block each
  int64_t batch = 0;
  OtherSoftware software;
  int64_t micro_batches() const { return batch / (spec.micro_batch * spec.data()); }
};

// Words of --parallel, of which the last may be recompute=selective.
Result<OtherStep> other_step(std::string_view model, std::string_view parallel, int64_t batch,
                             const OtherSoftware& software);

// The terms of composed_seconds: the same for any number of blocks and of stages beyond one.
Result<std::vector<StepProfile>> other_profiles(const OtherStep& step, const Cluster& cluster);
Result<double> composed_seconds(const OtherStep& step, const std::vector<StepProfile>& profiles,
                                const Cluster& cluster);

}  // namespace tessera::planner_test
