// Algorithms of kernels, chosen by timing (kernel_tune). Without times a backend
// takes the algorithm that a heuristic predicts to be fastest. Timing happens
// only on request and never during a run, since algorithms differ in their bits.
#pragma once

#include "graph/device_profile.h"
#include "graph/program.h"
#include "runtime/device_set.h"

namespace tessera {

bool can_time_algorithms(DeviceSet& devices);  // whether their backend has several for any kernel

// Times each kernel of `program` that has several algorithms and is not in `known`, on the first
// device. Returns `known` and the new choices, without those of another device, library or build.
Result<AlgorithmChoices> time_algorithms(const Program& program, const AlgorithmChoices& known,
                                         DeviceSet& devices);

// Programs lowered from now on use the choices. False if they are of another device, library or build.
bool use_algorithms(const AlgorithmChoices& algorithms, DeviceSet& devices);

}  // namespace tessera
