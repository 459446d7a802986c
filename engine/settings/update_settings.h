// UpdateSettings: the settings of one optimizer step, with the trainer's own as defaults.
#pragma once

#include <map>
#include <string>

#include "engine/base/options.h"
#include "graph/base/result.h"
#include "graph/transform/training.h"

namespace tessera {

struct UpdateSettings {
  std::map<std::string, double> values;  // by setting of the optimizer, and "clip_norm"
};

// The settings with which the trainer was made.
UpdateSettings planned_update(const TrainingOptions& step);

// Reads those that the options of a step give. A setting that the optimizer's updates do not take by step is an error of
// the reader.
UpdateSettings read_update(OptionReader& reader, const TrainingOptions& step);

}  // namespace tessera
