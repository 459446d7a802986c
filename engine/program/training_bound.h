// Lower bounds on a training's memory, found without planning; what they exclude needs no search.
#pragma once

#include <cstdint>

#include "engine/base/options.h"
#include "engine/base/runtime.h"
#include "engine/data/dataset.h"
#include "engine/model/shared_model.h"
#include "engine/settings/trainer_settings.h"
#include "graph/graph.h"
#include "runtime/device_set.h"

namespace tessera {

// Lower bound on the fullest device's bytes over all plans and forms of the loss; 0: unknown.
int64_t least_training_bytes(const Graph& forward, bool language_model, const TrainerSettings& settings,
                             const DeviceSet& devices);

struct TrainingBound {
  int64_t bytes = 0;  // lower bound
  int64_t limit = 0;  // per device; 0: none
  bool excludes() const { return limit > 0 && bytes > limit; }
};
// The bound of a trainer with these options; `dataset` may be null.
Result<TrainingBound> bound_training(Runtime& runtime, const SharedModel& model, const Dataset* dataset,
                                     const Options& options);

}  // namespace tessera
