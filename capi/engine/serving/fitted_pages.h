// How many pages of keys and values a memory limit leaves room for.
#pragma once

#include <memory>

#include "capi/engine/compile.h"
#include "capi/engine/serving/serving_settings.h"
#include "runtime/device_set.h"

namespace tessera {

// compile_serving with `settings.pages` chosen: as many as the settings' memory limit has room for, beside weights and
// scratch, at most those that all sequences fill, at least those of one of them; else kOutOfMemory. `settings` are
// finalized.
Result<CompiledProgram> compile_fitting(const Graph& forward, ServingSettings& settings,
                                        const std::shared_ptr<DeviceSet>& devices,
                                        const TrainedPlan* along = nullptr);

}  // namespace tessera
