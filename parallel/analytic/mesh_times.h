// What all configurations of one mesh and micro-batch have in common, whatever their schedule, ZeRO stage and
// savings of memory: the passes of their blocks and ends.
#pragma once

#include "parallel/analytic/after_bound.h"
#include "parallel/analytic/known_replays.h"
#include "parallel/analytic/stage_time.h"
#include "parallel/analytic/step_space.h"

namespace tessera {

// Holds references to model and cluster.
class MeshTimes {
 public:
  MeshTimes(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
            const ForeignPlan& mesh)
      : mesh_(mesh), times_(model, mesh_, cluster), share_(tessera::backward_share(times_, options, mesh_)) {}
  // Of another mesh with the same tp, cp and ep and micro-batch.
  MeshTimes(const MeshTimes& alike, const StepSearchOptions& options, const ForeignPlan& mesh)
      : mesh_(mesh), times_(alike.times_, mesh_), share_(tessera::backward_share(times_, options, mesh_)) {}
  MeshTimes(const MeshTimes&) = delete;
  MeshTimes& operator=(const MeshTimes&) = delete;

  // Holds a reference to the plan, one of this mesh.
  StageTimes of(const ForeignPlan& plan) const { return {times_, plan}; }
  double backward_share() const { return share_; }
  KnownReplays& replays() const { return replays_; }

 private:
  const ForeignPlan mesh_;
  const StageTimes times_;
  const double share_;
  mutable KnownReplays replays_;  // remembered, not changed
};

}  // namespace tessera
