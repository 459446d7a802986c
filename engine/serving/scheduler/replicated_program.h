// Replication of a program on other devices of the same kind, with the same plan.
#pragma once

#include <memory>

#include "engine/program/program_runner.h"
#include "runtime/device_set.h"

namespace tessera {

// kInvalidArgument for another number of devices.
Result<std::shared_ptr<const LoadedProgram>> replicate_program(const LoadedProgram& program,
                                                               std::shared_ptr<DeviceSet> devices);

}  // namespace tessera
