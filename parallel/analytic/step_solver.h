// One configuration of a step's search solved: what every stage holds and recomputes, where the cuts are.
// Stage contents by repeated blocks within the memory limit, cuts under a lower bound of the schedule's time,
// and the result replayed.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "graph/base/result.h"
#include "parallel/analytic/after_bound.h"
#include "parallel/analytic/stage_time.h"
#include "parallel/analytic/step_space.h"
#include "parallel/analytic/step_time.h"

namespace tessera {

struct FoundStep {
  ForeignPlan plan;                 // recompute: kFull or kSelective when any block is, see stages
  std::vector<StageBlocks> stages;  // virtual stages
  StepTime time;
  std::vector<int64_t> memory_bytes;  // by device of the pipeline
};

// All chunks of one device of the pipeline.
StageBlocks blocks_on(const FoundStep& found, int32_t device);

// All that is the same for every cut of one configuration. Holds references: a solver does not outlive its
// model, cluster and options.
class StepSolver {
 public:
  StepSolver(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
             const ForeignPlan& plan, int64_t limit);

  // No plan of this configuration is faster; before anything is solved.
  double bound() const;
  // kOutOfMemory when nothing fits. Raises `bound_s` to what the solution proves. Of steps of `most_s` or
  // more only that much need be known.
  Result<FoundStep> solve(double& bound_s, double most_s = INFINITY) const;
  // The smallest limit under which solve() finds a plan, or `at_most` where that is smaller.
  int64_t least_limit(int64_t at_most = INT64_MAX) const;

 private:
  int64_t in_flight(int32_t stage) const;
  int64_t memory_bytes(int32_t device, const StageBlocks& stage) const;
  int64_t fixed_bytes(int32_t device, int64_t count) const;
  std::optional<StageBlocks> fill(int32_t device, int64_t count) const;
  int64_t least_bytes(int32_t device, int64_t count) const;  // with which fill() has something
  bool holds_all(int64_t limit) const;                       // some cut has stages that all can be filled
  Result<FoundStep> solve_interleaved(double& bound_s, double most_s) const;
  Result<FoundStep> finish(std::vector<StageBlocks> stages, double most_s) const;
  double with_after(double pipeline_s) const;

  const TransformerShape& model_;
  const Cluster& cluster_;
  const StepSearchOptions& options_;
  const ForeignPlan plan_;
  const StageTimes times_;
  const int64_t m_;
  const int64_t limit_;
  const AfterBound after_;
  const std::vector<Recompute> ways_;
  std::vector<double> way_seconds_;
};

}  // namespace tessera
