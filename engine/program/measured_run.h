// Runs a Program several times and measures each of its instructions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "graph/graph.h"
#include "graph/program.h"
#include "parallel/planner/planner.h"
#include "runtime/device_set.h"
#include "runtime/session.h"

namespace tessera {

struct MeasuredRun {
  std::vector<std::vector<double>> seconds;  // [rank][instruction] of entry 0
  double outside_s = 0;  // fixed time of one run besides its instructions: starting and ending it
  double run_s = 0;      // of one run, the median
  // From the end of an instruction to the beginning of one on another stream that waited for it: the mean
  // without the longest fiftieth; 0 where none waits.
  double stream_switch_s = 0;
};

struct MeasureOptions {
  double budget_s = 1;  // rounds stop once this is used up, after three
  int32_t rounds = 9;   // at most
  bool traces = true;   // false: only `run_s` is measured, without the cost of tracing
};

// With traces every rank must have the same instructions, except the two ends of a message. The lower
// quartile over rounds counts, after one that is not counted: disturbances only ever add. Collectives and
// messages count from the arrival of the last participant. `fill` writes the kernels' inputs.
Result<MeasuredRun> measure_run(std::shared_ptr<DeviceSet> devices, Program program,
                                const MeasureOptions& options,
                                const std::function<Status(Session&, const std::string& entry)>& fill);

double lower_quartile(std::vector<double> values);
double median(std::vector<double> values);

// For PlanOptions.measure. One plan at a time holds memory; plans alternate, in both orders, so that a
// machine whose speed drifts is fair to all; the fastest turn of a plan counts. Parameters are drawn as for a
// fresh model, inputs are small numbers: token ids inside the smallest table that is looked up.
MeasurePlans measured_steps(std::shared_ptr<DeviceSet> devices, std::shared_ptr<const Graph> graph);

}  // namespace tessera
