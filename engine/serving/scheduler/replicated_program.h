// A program a second time, on other devices of the same kind: its plan is made once.
#pragma once

#include <memory>

#include "engine/program/program_runner.h"
#include "runtime/device_set.h"

namespace tessera {

// kInvalidArgument where these are fewer or more devices than the program's.
Result<std::shared_ptr<const LoadedProgram>> replicate_program(const LoadedProgram& program,
                                                               std::shared_ptr<DeviceSet> devices);

}  // namespace tessera
