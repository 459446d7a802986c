// The whole space of a step's search, as families: meshes with a micro-batch, whose schedule, ZeRO stage and
// memory savings are still open. Far too many to look at one by one, so each is bounded by what its blocks
// take alone, and those that reach the best step known are never made.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/analytic/mesh_times.h"
#include "parallel/analytic/step_space.h"

namespace tessera {

struct StepFamily {
  ForeignPlan plan;
  double bound_s = 0;                      // no plan of the family is faster
  std::shared_ptr<const MeshTimes> alike;  // of a mesh that splits blocks as this one does
};

struct StepFamilies {
  std::vector<StepFamily> open;  // by bound, ascending
  int64_t closed = 0;            // reached `best_s`
  double least_closed_s = 0;     // the least bound of those; INFINITY when there are none
};

StepFamilies step_families(const TransformerShape& model, const Cluster& cluster,
                           const StepSearchOptions& options, double best_s);

// Configurations that differ in how many chunks a device has: from the plan's `virtual_stages` to
// `chunks_to`. There are as many as a device has blocks, so they are bounded together and told apart only
// where that does not close them.
struct StepConfigurations {
  ForeignPlan plan;
  int32_t chunks_to = 1;
  int64_t count() const { return chunks_to - plan.virtual_stages + 1; }
};

// All of a family: every schedule and ZeRO stage.
std::vector<StepConfigurations> configurations_of(const ForeignPlan& mesh, const TransformerShape& model,
                                                  const StepSearchOptions& options);

}  // namespace tessera
