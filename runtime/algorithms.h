// Algorithms of kernels, chosen by timing (kernel_tune). Where a backend has several for a kernel, it takes
// the one that a rule predicts to be the fastest until it has times. Nothing is timed while a program runs,
// and never unasked: different algorithms give different bits.
#pragma once

#include "graph/device_profile.h"
#include "graph/program.h"
#include "runtime/device_set.h"

namespace tessera {

bool can_time_algorithms(DeviceSet& devices);  // whether their backend has several for any kernel

// Times the kernels of `program` that have several algorithms and are not in `known`, each once, on the first
// device. Returns the choices, including `known`, except those that another device, library or build made.
Result<AlgorithmChoices> time_algorithms(const Program& program, const AlgorithmChoices& known,
                                         DeviceSet& devices);

// Makes programs lowered from now on use the choices. False where another device, library or build made them.
bool use_algorithms(const AlgorithmChoices& algorithms, DeviceSet& devices);

}  // namespace tessera
