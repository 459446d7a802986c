// A lower bound on a training's memory, without a search: if it exceeds the limit, no plan fits.
#pragma once

#include <cstdint>

#include "engine/settings/trainer_settings.h"
#include "graph/graph.h"
#include "runtime/device_set.h"

namespace tessera {

// Lower bound on the fullest device's bytes, over all plans, with fused and unfused loss; 0: unknown.
int64_t least_training_bytes(const Graph& forward, bool language_model, const TrainerSettings& settings,
                             const DeviceSet& devices);

}  // namespace tessera
