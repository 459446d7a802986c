// Planning of engines: their program and the bytes of all that they hold, without an engine.
#pragma once

#include "engine/base/runtime.h"
#include "engine/model/shared_model.h"
#include "engine/program/compile.h"

namespace tessera {

// The plan of an engine with these options, its PlanRecord::serving filled in. Each device's arena has the bytes that the
// engine reports. What does not fit is planned too and said in ServingPlan::Device::fits. Only a draft model's file is read;
// nothing is allocated.
Result<CompiledProgram> plan_serving(Runtime& runtime, const SharedModel& model, const Options& options);

// Options of engines with what can be said of them without a model.
Status check_serving_options(const Options& options);

}  // namespace tessera
