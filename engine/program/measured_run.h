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
  double outside_s = 0;  // fixed time of a run outside its instructions
  double run_s = 0;      // of one run, the median
  // From the end of an instruction to the begin of one on another stream
  // that waited for it: mean without the longest 2 %; 0: none waited.
  double stream_switch_s = 0;
};

struct MeasureOptions {
  double budget_s = 1;  // no new round after this, but at least three
  int32_t rounds = 9;   // at most
  bool traces = true;   // false: only `run_s` is measured, without the cost of tracing
};

// Runs the program in rounds. With traces, ranks must have equal instructions, except the two ends of
// a message. The lower quartile over rounds counts, since disturbances only add; a first round is
// discarded. Collectives and messages count from the last arrival. `fill` writes the kernels' inputs.
Result<MeasuredRun> measure_run(std::shared_ptr<DeviceSet> devices, Program program,
                                const MeasureOptions& options,
                                const std::function<Status(Session&, const std::string& entry)>& fill);

double lower_quartile(std::vector<double> values);
double median(std::vector<double> values);

// Implements PlanOptions.measure. One plan at a time holds memory. Plans
// alternate in both orders, so that drifting speed is fair; each plan's
// fastest turn counts. Parameters are random, inputs small token ids.
MeasurePlans measured_steps(std::shared_ptr<DeviceSet> devices, std::shared_ptr<const Graph> graph);

}  // namespace tessera
