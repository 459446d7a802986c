// Measured step times of training plans (shared test data), and how predictions compare with them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/cluster.h"
#include "parallel/analytic/foreign_plan.h"
#include "parallel/analytic/steady_step.h"
#include "parallel/analytic/transformer.h"

namespace tessera::planner_test {

struct MeasuredStep {
  TransformerShape model;
  ForeignPlan plan;
  int64_t batch = 0;
  bool multi_node = false;
  double seconds = 0;
};

// vtrain_a100_{single,multi}_node.csv of the test data; nothing where the data is absent.
std::optional<std::vector<MeasuredStep>> read_measured_steps(bool multi_node);

// Ratios predicted / measured - 1 over all rows, and decisions within groups of rows that differ in the plan
// alone.
struct Accuracy {
  double mape = 0, median = 0;
  double pairwise = 0;  // of pairs measured more than 2 % apart, how many are put in the right order
  double regret = 0;    // mean over groups: the plan chosen, measured, over the best measured, less 1
  double worst_regret = 0;
  double fastest_regret = 0;  // mean: of the plan predicted fastest
  int rows = 0, groups = 0;
};
// A plan is chosen as searches choose by default (`within` of the fastest: analytic/steady_step.h).
Accuracy accuracy(const std::vector<MeasuredStep>& rows, const std::vector<double>& predicted,
                  double within = kNearlyAsFast);

}  // namespace tessera::planner_test
