// Runs a Program several times and says what each of its instructions took.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "graph/program.h"
#include "runtime/device_set.h"
#include "runtime/session.h"

namespace tessera {

struct MeasuredRun {
  std::vector<std::vector<double>> seconds;  // [rank][instruction] of entry 0
  double outside_s = 0;                      // of one run beside its instructions: handing over and back
  double run_s = 0;                          // of one run, the median
  // From the end of an instruction to the beginning of one on another stream that stood waiting for it, the
  // mean without the longest fiftieth; 0 where none does.
  double handover_s = 0;
};

struct MeasureOptions {
  double budget_s = 1;  // rounds stop once this is used up, after three
  int32_t rounds = 9;   // at most
  bool traces = true;   // false: `run_s` alone is measured, without what tracing takes
};

// Where it traces, every rank has the same instructions, but for the two ends of a message. The lower
// quartile over rounds, after one that is not counted: what else the machine does only ever adds. Collectives
// and messages count from when the last of those who meet has arrived. `fill` writes what kernels read.
Result<MeasuredRun> measure_run(std::shared_ptr<DeviceSet> devices, Program program,
                                const MeasureOptions& options,
                                const std::function<Status(Session&, const std::string& entry)>& fill);

double lower_quartile(std::vector<double> values);
double median(std::vector<double> values);

}  // namespace tessera
