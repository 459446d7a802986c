// Predicted time of one training step of a transformer under a foreign plan: every kernel of a block priced
// from the device's rates, every collective from the cluster's links, the schedule replayed stage by stage.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "graph/base/result.h"
#include "parallel/analytic/device_time.h"
#include "parallel/analytic/foreign_plan.h"
#include "parallel/analytic/transformer.h"

namespace tessera {

struct ReplayedPass;  // parallel/analytic/pipeline_replay.h
class KnownReplays;   // parallel/analytic/known_replays.h

struct StepTime {
  double step_s = 0;
  // Of the slowest stage, summed over its micro-batches.
  double compute_s = 0;        // kernels and waiting for the host that issues them
  double recompute_s = 0;      // of which: forward again
  double communication_s = 0;  // tensor-parallel collectives and sends between stages
  double sends_s = 0;          // of which: sends
  double offload_s = 0;        // waiting for weights and activations that lie on the host
  double bubble_s = 0;         // waiting for other stages
  double gradients_s = 0;      // reduction over dp that is not hidden
  double update_s = 0;         // optimizer
  int32_t slowest = 0;         // the stage (device of the pipeline) that this is of
};

// Blocks of one stage, and how many of them are recomputed.
struct StageBlocks {
  int64_t blocks = 0;
  int64_t full = 0, selective = 0;
  // Of those not recomputed: with 1, 2, 3, 4 quarters of what they keep waiting on the host.
  std::array<int64_t, 4> offloaded = {};
  friend bool operator==(const StageBlocks&, const StageBlocks&) = default;
};

// The even split of the plan, over virtual stages, with its recomputation for every block.
std::vector<StageBlocks> even_stages(const TransformerShape& model, const ForeignPlan& plan);

// Fails where check_foreign_plan does. `stages`: one for each virtual stage; empty for the even split.
// `passes`, where given, takes every pass of the pipeline. Of steps of `most_s` or more only that much need
// be known: their step_s may be infinite. `known`: replays made before, not with passes.
Result<StepTime> step_time(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster,
                           int64_t global_batch, std::span<const StageBlocks> stages = {},
                           std::vector<ReplayedPass>* passes = nullptr, double most_s = INFINITY,
                           KnownReplays* known = nullptr);

// Parameters that one tensor- and expert-parallel rank of a stage holds.
struct StageParameters {
  double dense = 0, experts = 0;            // all, those of adapters included
  double trained = 0, trained_experts = 0;  // of which: with gradients and optimizer state
  double sharded = 0, trained_sharded = 0;  // of the dense ones: spread as zero=3 does, one by one
  double all() const { return dense + experts; }
  double all_trained() const { return trained + trained_experts; }
  StageParameters& operator+=(const StageParameters& other);
};

// After the pipeline: gradients reduced as far as not hidden, and the update, for a stage with so many
// parameters whose backward pass of one micro-batch takes `backward_s`.
struct AfterPipeline {
  double gradients_s = 0, update_s = 0;
};
// The same before it is known how long a backward pass lasts.
class AfterParts {
 public:
  AfterParts(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster,
             int64_t micro_batches, const StageParameters& parameters);

  AfterPipeline beside(double backward_s) const;
  // Lengths of a backward pass from which on more of it hides nothing more of some part.
  const std::vector<double>& all_hidden_s() const { return all_hidden_s_; }

 private:
  // What is reduced or gathered together: it hides beside so many backward passes, but for one bucket.
  struct Part {
    double seconds = 0, passes = 0;
    double copied_s = 0;  // into one buffer and back, beside nothing
  };
  std::vector<Part> parts_;
  std::vector<double> all_hidden_s_;
  const bool overlaps_;
  const double buckets_;
  double tied_s_ = 0, update_s_ = 0;
};
AfterPipeline after_pipeline(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster,
                             int64_t micro_batches, const StageParameters& parameters, double backward_s);

}  // namespace tessera
