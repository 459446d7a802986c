// Device constants fitted to measured steps: rates, launch costs and links, never a table of times.
#pragma once

#include <span>
#include <vector>

#include "graph/cluster.h"
#include "measured_steps.h"

namespace tessera::planner_test {

// Name, where the constant lives in a cluster, and how all that it stands for is scaled.
struct Constant {
  const char* name;
  double& (*in)(Cluster& cluster);
  void (*scale)(Cluster& cluster, double by);
  double known;
};
std::span<const Constant> fitted_constants();

// The cluster that `row` ran on, with the constants of `base`: as many devices as its plan uses.
Cluster cluster_for(const Cluster& base, const MeasuredStep& row);
std::vector<double> predict(const Cluster& base, const std::vector<MeasuredStep>& rows);

// Minimises the mean of |log(predicted / measured)|, which one bad row cannot bend, from `start`, by two
// simplex searches of so many evaluations over the logarithms of the constants. Deterministic.
Cluster fit(const Cluster& start, const std::vector<MeasuredStep>& rows, int evaluations);

}  // namespace tessera::planner_test
