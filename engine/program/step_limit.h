// StepLimit: the least time of a training step on devices of given rates, from its operations and unavoidable bytes.
#pragma once

#include <string>
#include <vector>

#include "engine/program/compile.h"

namespace tessera {

struct StepLimit {
  // Term: a phase takes as long as its operations at the rate of large matmuls, or its bytes at the rate of memory,
  // whichever is longer. forward reads each parameter once; backward reads it again and writes its gradient (both
  // without tables of lookups); update reads parameter, gradient and optimizer state, and writes parameter and state.
  struct Term {
    std::string phase;  // "forward", "backward", "update"
    double flops = 0, bytes = 0, seconds = 0;
    bool by_memory = false;
  };
  std::vector<Term> terms;
  double seconds = 0;                       // sum of phases: an update begins when the gradient's norm is known
  double flops_per_s = 0, bytes_per_s = 0;  // of all devices together
  bool is_measured = false;                 // rates of a device profile; else those stated by the backend
};

// The limit of the first entry, a training step. Communication, activations and recomputation count nothing.
Result<StepLimit> step_limit(const PlanRecord& record);

}  // namespace tessera
