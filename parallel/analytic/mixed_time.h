// One training step of a pipeline whose stages lie on devices of different kinds: every stage priced with its
// own devices and links, what passes from one kind to another with the link between them. Tensor and data
// mesh are the same in each stage.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "parallel/analytic/stage_time.h"

namespace tessera {

struct StageKinds {
  std::vector<Cluster> kinds;    // of one kind each
  std::vector<size_t> of_stage;  // which of them
  Cluster between;               // what joins them, as a cluster
};

// Times of the stages of one plan. Holds references: does not outlive its model, plan and kinds.
class MixedStages {
 public:
  MixedStages(const TransformerShape& model, const ForeignPlan& plan, const StageKinds& kinds);

  // With what comes from other kinds and goes to them.
  StagePasses passes(int32_t stage, const StageBlocks& blocks) const;
  const StageTimes& times(int32_t stage) const { return times_[kinds_.of_stage[static_cast<size_t>(stage)]]; }

 private:
  bool meets(int32_t a, int32_t b) const;

  const ForeignPlan& plan_;
  const StageKinds& kinds_;
  std::vector<StageTimes> times_;  // by kind
  StageTimes between_;
};

// The gradient of an embedding that is the head, too, summed over the first and the last stage.
double shared_embedding_seconds(const TransformerShape& model, const ForeignPlan& plan,
                                const StageKinds& kinds);

// As step_time, for one chunk a stage.
Result<StepTime> mixed_step_time(const TransformerShape& model, const ForeignPlan& plan,
                                 const StageKinds& kinds, int64_t global_batch,
                                 std::span<const StageBlocks> stages,
                                 std::vector<ReplayedPass>* passes = nullptr);

}  // namespace tessera
