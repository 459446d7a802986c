// Closed-form bounds of configurations of the whole space: the least that a pipeline takes, and the least
// with what comes after it.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/analytic/stage_time.h"
#include "parallel/analytic/step_space.h"

namespace tessera {

// Sums of rounded times may differ from the replay's in the last bits.
constexpr double kBoundSlack = 1 - 1e-9;

// One way to compute a block.
struct BlockWay {
  Recompute recompute = Recompute::kNone;
  int32_t quarters = 0;  // of what it keeps, on the host
  double seconds = 0;
};

StageBlocks blocks_of(int64_t count, const BlockWay& way);
double seconds_of(const StagePasses& passes);
// That may be chosen, the fastest first.
std::vector<Recompute> recomputations(const StepSearchOptions& options, const ForeignPlan& plan);

StageParameters average_of(StageParameters all, int32_t parts);

// Of a pipeline and what comes after it. Holds references.
class AfterBound {
 public:
  AfterBound(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
             const ForeignPlan& plan, const StageTimes& times);

  // The least of pipelines of P seconds or more and what comes after. No device holds fewer parameters than
  // `own`, and no backward pass that hides communication lasts longer than its share of P / m. What hides
  // beside every micro-batch may gain more by a longer pipeline than that costs; the sum is convex in P.
  double step_s(double pipeline_s, const StageParameters& own) const;

 private:
  const TransformerShape& model_;
  const Cluster& cluster_;
  const ForeignPlan& plan_;
  const int64_t m_;
  const double share_;
};

// No shorter pipeline is possible, with the plan's number of chunks or up to `chunks_to`: from all stages'
// passes as if they were one, which a slow host makes shorter.
double pipeline_bound(const TransformerShape& model, const StepSearchOptions& options,
                      const ForeignPlan& plan, int32_t chunks_to, const StageTimes& times);

}  // namespace tessera
