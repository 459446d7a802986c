// Joint plans: the memory of a trainer and of engines over one model, before anything is allocated.
#pragma once

#include <string>

#include "engine/base/runtime.h"
#include "engine/data/dataset.h"
#include "engine/model/shared_model.h"

namespace tessera {

// The text of tsr_plan_jointly; `dataset` may be null. kOutOfMemory above the limit.
Result<std::string> plan_jointly(Runtime& runtime, const SharedModel& model, const Dataset* dataset,
                                 const Options& trainer, const Options& engine, const Options& options);

}  // namespace tessera
