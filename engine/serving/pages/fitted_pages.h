// How many pages of keys and values a memory limit leaves room for.
#pragma once

#include <memory>

#include "engine/program/compile.h"
#include "engine/program/serving_settings.h"
#include "runtime/device_set.h"

namespace tessera {

// compile_serving with `settings.pages` chosen: as many as the settings' memory limit has room for, next to weights and
// scratch, at most those that all sequences fill, at least those of one of them; else kOutOfMemory. Window pages are in
// proportion, at least those that one sequence needs; where all layers have windows, they alone are chosen. `settings` are
// finalized; `chooses_windows`: window pages were not given.
Result<CompiledProgram> compile_fitting(const Graph& forward, ServingSettings& settings, bool chooses_windows,
                                        const std::shared_ptr<DeviceSet>& devices,
                                        const TrainedPlan* along = nullptr);

}  // namespace tessera
