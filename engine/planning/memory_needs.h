// Memory needs of a model on given devices: to generate text, to train adapters, to train all parameters.
#pragma once

#include <string>

#include "engine/base/options.h"
#include "engine/base/runtime.h"
#include "engine/model/shared_model.h"

namespace tessera {

// Plans are made, nothing is allocated. Keys and options: tsr_model_needs.
Result<std::string> memory_needs_json(Runtime& runtime, const SharedModel& model, const Options& options);

}  // namespace tessera
