// StepLimit: lower bound on a training step's time, from its operations and unavoidable bytes (roofline).
#pragma once

#include <string>
#include <vector>

#include "engine/program/compile.h"

namespace tessera {

struct StepLimit {
  // Term: a phase takes the longer of its operations at the matmul rate and its bytes at the memory
  // rate. forward reads parameters; backward reads them and writes gradients (both without lookup
  // tables); update reads parameters, gradients and optimizer state, and writes parameters and state.
  struct Term {
    std::string phase;  // "forward", "backward", "update"
    double flops = 0, bytes = 0, seconds = 0;
    bool by_memory = false;
  };
  std::vector<Term> terms;
  double seconds = 0;                       // sum over phases: the update waits for the gradient norm
  double flops_per_s = 0, bytes_per_s = 0;  // of all devices
  bool is_measured = false;                 // rates are from a device profile, else stated by the backend
};

// The bound of the first entry, a training step, without communication, activations and recomputation.
Result<StepLimit> step_limit(const PlanRecord& record);

}  // namespace tessera
