// GroupBound: what all plans of a group take at least (composed_space.h), from the profile of one replica's blocks in one stage: every
// device carries out its passes in a row, after those that its first waits for, and computes as much again as its memory asks for.
//
// Rests on two properties: neither replicas nor ZeRO make a pass faster; micro-batches in flight are spread evenly over the stages of a
// device. The search holds every composed step against its bound.
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

  // The profile that it is made of, for PlanComposer::prepare.
  static PlanComposer::Wanted wanted(const StrategySpec& group);

  // Of any plan of the group on so many devices.
  double seconds(int64_t devices) const;
  // Of one of its plans; infinite where parameters, state and gradients alone do not fit.
  double seconds(const StrategySpec& plan);
  // Bytes that any of its plans takes: those of one block's forward pass, which is carried out whatever is computed again.
  int64_t bytes() const;

 private:
  // Of one stage, of one micro-batch.
  struct Stage {
    double forward = 0, backward = 0, weight = 0;
    int64_t blocks = 0;
    double persistent = 0;  // bytes of parameters and state
    double gradients = 0;   // of their sums
    double kept = 0;        // bytes that wait for backward
  };
  GroupBound(const StrategySpec& group, PlanComposer& composer, const StepProfile& kept);
  const std::vector<Stage>& stages_of(const StrategySpec& plan);
  double update_seconds(const StrategySpec& plan) const;
  double reduction_seconds(const StrategySpec& plan) const;
  // Parameters, state and sums of gradients.
  double lasting_bytes(const StrategySpec& plan, const Stage& stage) const;
  // Of one device: seconds that it computes again in every micro-batch, where so many pairs of stage and micro-batch wait.
  double again_seconds(const StrategySpec& plan, const Stage& device, int32_t live);
  // Of a block on average: bytes that it frees by being computed again, and seconds that this takes.
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
  std::optional<Again> again_;                    // once asked for
  std::map<int32_t, std::vector<Stage>> stages_;  // by their number
};

}  // namespace tessera
