// One configuration of the whole space solved, under any schedule: what every device recomputes or leaves on
// the host, where the cuts are, and which savings of memory that slow down what comes after the pipeline
// (sharded operators, slices, optimizer state on the host) pay.
//
// Such savings form chains, along which memory falls and time after the pipeline grows; the pipeline's own
// time only falls with the memory. So of any stretch of a chain no plan is faster than the pipeline at its
// end with what comes after at its beginning, and halving finds the best.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/analytic/mesh_times.h"
#include "parallel/analytic/step_solver.h"
#include "parallel/analytic/wide_space.h"

namespace tessera {

struct SolvedStep {
  std::optional<FoundStep> found;  // nothing: does not fit, or is closed by `best_s`
  double bound_s = 0;              // no plan of the configuration is faster
  bool too_large = false;
  bool wants_memory = false;  // more memory could make it faster
};

// Bound of configurations before anything is solved.
double wide_bound(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
                  const StepConfigurations& configurations, const MeshTimes& times);

// Whether no plan of a mesh, whatever its schedule and its savings, takes less than `step_s`: because its
// devices, each with as many blocks as it can hold and do in less, have fewer than all. In closed form
// (analytic/relaxed_cuts).
bool none_below(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
                const ForeignPlan& mesh, const MeshTimes& times, int64_t limit, double step_s);
// The same of configurations that differ in their chunks, or of one.
bool none_below(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
                const StepConfigurations& of, const MeshTimes& times, int64_t limit, double step_s);

// Of plans that reach `best_s` none needs to be found.
SolvedStep solve_wide(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
                      const ForeignPlan& plan, const MeshTimes& times, int64_t limit, double best_s);

}  // namespace tessera
