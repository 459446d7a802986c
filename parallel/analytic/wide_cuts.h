// What the devices of one configuration hold, and where it is cut: every device's blocks computed in the ways
// that fit its memory, cuts optimal under a bound of the schedule's time.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "parallel/analytic/mesh_times.h"
#include "parallel/analytic/wide_bounds.h"
#include "parallel/search/convex_floor.h"

namespace tessera {

// Savings that slow down what comes after the pipeline.
struct Saving {
  int32_t attention = 0, mlp = 0, chunks = 1, optimizer = 0;
};

// Under some limit.
struct CutPipeline {
  double bound_s = 0;                          // none is shorter, or it is no less than was asked for
  std::vector<std::vector<StageBlocks>> cuts;  // by virtual stage; the best of them counts
  bool all_kept = true;                        // nothing is recomputed or waits on the host
};

// Holds references: does not outlive its model, cluster and options.
class WideCuts {
 public:
  // `chunks_to`, more than the plan's chunks: of several configurations, whatever each holds least.
  WideCuts(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
           const ForeignPlan& plan, int32_t chunks_to, const MeshTimes& mesh);
  WideCuts(const WideCuts&) = delete;
  WideCuts& operator=(const WideCuts&) = delete;

  const ForeignPlan& plan() const { return plan_; }  // with what was applied
  const StageTimes& times() const { return times_; }
  const std::vector<BlockWay>& ways() const { return ways_; }

  Saving saving() const;
  void apply(const Saving& saving);

  // Nothing where no cut fits. Of cuts that take `best_s` or more only that much is known.
  std::optional<CutPipeline> pipeline(int64_t limit, double best_s) const;
  // All that a device holds, with all its chunks.
  StageMemory memory(int32_t device, const StageBlocks& stage) const;
  // All chunks of a device: as one, but every chunk sends what it makes.
  StagePasses passes(int32_t device, const StageBlocks& whole) const;
  int64_t micro_batches() const { return m_; }
  int32_t chunks(int32_t device) const;
  int32_t most_chunks() const { return chunks_to_; }
  // Micro-batches, of one chunk each, whose activations a device holds at once.
  int64_t flights(int32_t device) const;

 private:
  struct Price {
    StageBlocks blocks;
    StagePasses passes;
    bool fits = false;
  };
  class Prices;

  void add_way(BlockWay way);
  std::optional<StageBlocks> fill(int32_t device, int64_t count, int64_t limit) const;
  std::vector<StageBlocks> deal(const StageBlocks& whole) const;
  int32_t stage_of(int32_t device, size_t chunk) const;
  ConvexFloor least_way(Prices& priced, double step_s) const;
  bool some_cut_below(Prices& priced, double step_s) const;
  void wait_for_first(Prices& priced, double best_s, CutPipeline& result) const;
  int64_t most_blocks(Prices& priced, int32_t device, int64_t least, int64_t most, double before,
                      double step_s) const;
  std::vector<int64_t> chunks_below(Prices& priced, double step_s) const;
  void wait_for_first_chunks(Prices& priced, double best_s, CutPipeline& result) const;
  void add_cut(Prices& priced, const std::vector<int64_t>& counts, CutPipeline& result) const;

  const TransformerShape& model_;
  const Cluster& cluster_;
  const StepSearchOptions& options_;
  ForeignPlan plan_;  // savings change it; passes do not depend on them, so `times_` stays right
  const StageTimes times_;
  const int64_t m_;
  const int32_t chunks_to_;
  std::vector<BlockWay> ways_;
};

}  // namespace tessera
