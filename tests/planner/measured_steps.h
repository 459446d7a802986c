// Measured step times of training plans (shared test data), and how predictions compare with them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "baseline_forecast.h"

namespace tessera::planner_test {

struct MeasuredStep {
  BaselineStep step;
  bool multi_node = false;
  double seconds = 0;
  int64_t width() const { return step.model.sizes.at("C"); }
};

// vtrain_a100_{single,multi}_node.csv of the test data; nothing where the data is absent.
std::optional<std::vector<MeasuredStep>> read_measured_steps(bool multi_node);

// Steps composed with the constants of `base`, of as many devices as each row's plan uses; NaN where that fails.
std::vector<double> predict(const Cluster& base, const std::vector<MeasuredStep>& rows);

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
// A plan is chosen among those with as many stages as the fastest and within 2 % of it: the one with least tensor parallelism,
// then smallest micro-batches, then least time.
Accuracy accuracy(const std::vector<MeasuredStep>& rows, const std::vector<double>& predicted);

}  // namespace tessera::planner_test
