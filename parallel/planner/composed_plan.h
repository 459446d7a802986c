// ComposedPlan: the plan of a training step that is not lowered whole, since its devices are
// absent or its blocks too many: composed from the profile of a few blocks (parallel/composition).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/graph.h"
#include "graph/kernel_catalog.h"
#include "parallel/composition/composed_memory.h"
#include "parallel/composition/composed_time.h"
#include "parallel/composition/step_profile.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

struct ComposedModel {
  Graph few;                  // its step with few blocks (graph/transform/fewer_blocks.h)
  std::vector<int32_t> like;  // by block of the model: the equal block of `few`
  std::vector<std::pair<std::string, int64_t>> symbols;  // all except "B"
};

struct ComposedPlan {
  StrategySpec spec;      // recompute: none, full, or some if blocks differ
  ComposedStages stages;  // blocks of variant 1 are recomputed
  ComposedTime time;
  std::vector<DeviceBytes> devices;  // of the pipeline
  int64_t most_bytes() const;
  // Blocks: on one device of the pipeline.
  struct Blocks {
    int64_t count = 0, recomputed = 0;
  };
  Blocks blocks_on(int32_t device) const;
};

class PlanComposer {
 public:
  // `limit`: bytes per device that plans may use. All references must outlive this.
  PlanComposer(const ComposedModel& model, const Cluster& cluster, const KernelCatalog& catalog,
               int64_t global_batch, int64_t limit);

  // `spec` has a micro-batch. Stages are cut to minimize the slowest. recompute=auto and =some
  // recompute as few blocks as fit the limit, or all. Fails if the strategy cannot be applied.
  Result<ComposedPlan> compose(const StrategySpec& spec);

  // BlockProfile: of the spec's blocks without its pipeline; `alone`: of one micro-batch, whatever the global batch.
  struct BlockProfile {
    StrategySpec spec;
    bool recomputes = false;
    bool alone = false;
  };
  // Cached. Lives as long as this.
  Result<const StepProfile*> profile(const BlockProfile& of);
  // Prepares several in parallel.
  void prepare(std::span<const BlockProfile> wanted);

  // The cut with the fastest slowest stage, without recomputation.
  Result<ComposedStages> cut(const StrategySpec& spec, const StepProfile& profile) const;

  ScheduleCache& schedules() { return schedules_; }
  int64_t blocks() const { return static_cast<int64_t>(model_.like.size()); }
  int64_t global_batch() const { return global_batch_; }
  int64_t limit() const { return limit_; }
  const Cluster& cluster() const { return cluster_; }
  const ComposedModel& model() const { return model_; }
  // Bytes of all gradients of the model.
  int64_t gradient_bytes() const { return gradient_bytes_; }

 private:
  // ProfiledStep: the step that a profile is taken from; its text is the cache's key.
  struct ProfiledStep {
    StrategySpec spec;
    int64_t micro_batches = 1;
    std::string key() const;
  };
  Result<ProfiledStep> step_of(const BlockProfile& of) const;
  Result<StepProfile> make(const ProfiledStep& it) const;
  Status recompute_to_fit(std::span<const StepProfile> variants, ComposedPlan& plan);

  const ComposedModel& model_;
  const Cluster& cluster_;
  const KernelCatalog& catalog_;
  const int64_t global_batch_, limit_;
  int64_t gradient_bytes_ = 0;
  std::map<std::string, Result<StepProfile>> profiles_;
  ScheduleCache schedules_;
};

}  // namespace tessera
