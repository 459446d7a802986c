// Algorithms of kernels, chosen by timing: a backend computes some kernels in several ways (kernel_tune), of
// which it takes the one that a rule foretells to be the fastest until times say otherwise. Nothing is timed
// while a program runs, and never unasked: different ways leave different bits.
#pragma once

#include "graph/device_profile.h"
#include "graph/program.h"
#include "runtime/device_set.h"

namespace tessera {

bool can_time_algorithms(DeviceSet& devices);  // whether their backend has more than one for anything

// Times the kernels of `program` that have several ways and of which `known` says nothing, each once, on the
// first device; the choices, those of `known` among them. Those that another device, library or build made
// are left out.
Result<AlgorithmChoices> time_algorithms(const Program& program, const AlgorithmChoices& known,
                                         DeviceSet& devices);

// Programs that are lowered from now on take them. False where another device, library or build chose them.
bool use_algorithms(const AlgorithmChoices& algorithms, DeviceSet& devices);

}  // namespace tessera
