// The number of pages of keys and values that fits the memory limit.
#pragma once

#include <memory>

#include "engine/program/compile.h"
#include "engine/program/serving_settings.h"
#include "runtime/device_set.h"

namespace tessera {

// compile_serving with the largest number of pages that fits the memory limit next to weights and
// scratch: at least the pages of one sequence, at most those of all; else kOutOfMemory. Window pages
// are proportional, at least those of one sequence; if all layers have windows, window pages alone
// are chosen. `settings` are finalized. `chooses_windows`: the caller gave no number of window pages.
Result<CompiledProgram> compile_fitting(const Graph& forward, ServingSettings& settings, bool chooses_windows,
                                        const std::shared_ptr<DeviceSet>& devices,
                                        const TrainedPlan* along = nullptr);

}  // namespace tessera
