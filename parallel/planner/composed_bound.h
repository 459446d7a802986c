// GroupBound: lower bounds of all plans of a group (plan_space.h), from the profile of one replica's blocks in one stage:
// every device runs its passes in sequence, after those that its first waits for, and recomputes as much as its memory requires.
//
// Rests on two properties: neither replicas nor ZeRO speed up a pass; micro-batches in flight are
// spread evenly over a device's stages. The search checks every composed step against its bound.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "graph/base/result.h"
#include "parallel/planner/composed_plan.h"

namespace tessera {

class GroupBound {
 public:
  // `group`: one replica, one stage, its micro-batch. The composer must outlive this.
  static Result<GroupBound> of(const StrategySpec& group, PlanComposer& composer);

  // The profile it is made from.
  static PlanComposer::BlockProfile profile_of(const StrategySpec& group, bool recomputes = false);

  // Seconds of any plan of the group on `devices` devices.
  double seconds(int64_t devices) const;
  // Seconds of one of its plans; infinite if parameters, state and gradients alone do not fit.
  double seconds(const StrategySpec& plan);
  // Bytes of any of its plans: those of one block's forward pass, which runs whatever is recomputed.
  int64_t bytes() const;

 private:
  // Stage: one stage, with one micro-batch.
  struct Stage {
    double forward = 0, backward = 0, weight = 0;
    int64_t blocks = 0;
    double persistent = 0;  // bytes of parameters and state
    double gradients = 0;   // of gradient sums
    double kept = 0;        // bytes that wait for backward
  };
  GroupBound(const StrategySpec& group, PlanComposer& composer, const StepProfile& kept);
  const std::vector<Stage>& stages_of(const StrategySpec& plan);
  double update_seconds(const StrategySpec& plan) const;
  double reduction_seconds(const StrategySpec& plan) const;
  // Parameters, state and gradient sums.
  double lasting_bytes(const StrategySpec& plan, const Stage& stage) const;
  // Recomputation seconds of one device per micro-batch, with `live` waiting pairs of stage and micro-batch.
  double again_seconds(const StrategySpec& plan, const Stage& device, int32_t live);
  // Again: average of a block: bytes freed by recomputing it, and its seconds.
  struct Again {
    double bytes = 0, seconds = 0;
  };
  const Again& again();

  StrategySpec group_;
  PlanComposer* composer_;
  const StepProfile* kept_;
  std::vector<double> persistent_, gradients_;    // by block of the profile
  double pass_s_ = 0;                             // of one micro-batch in the whole model
  double update_s_ = 0;                           // of all blocks
  double gradient_bytes_ = 0;                     // of the whole model, on one rank
  std::optional<Again> again_;                    // computed on first use
  std::map<int32_t, std::vector<Stage>> stages_;  // by number of stages
};

}  // namespace tessera
