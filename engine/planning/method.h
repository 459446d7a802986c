// Method: the parameters that train, and the type in which the others are kept.
//   full         all parameters, as f32
//   lora         low-rank adapters; the base as the model has it
//   qlora:TYPE   low-rank adapters; the base quantised to TYPE, as `tessera quantize --type TYPE` does
#pragma once

#include <memory>
#include <string>

#include "engine/base/runtime.h"
#include "engine/data/dataset.h"
#include "engine/model/shared_model.h"

namespace tessera {

// The model that a method trains. Options are those of add_adapters; kInvalidArgument for any with "full".
Result<std::shared_ptr<SharedModel>> model_for_method(const std::shared_ptr<SharedModel>& model,
                                                      const std::string& method, const Options& adapters);

// Plans the methods of the option "method" ("auto": all), the richest first. The first that fits without tensors in a
// file is chosen, else the first that fits. JSON, whose keys are in tessera.h. `options`: the trainer's; `dataset` may
// be null. kOutOfMemory where none fits: it names the nearest.
Result<std::string> plan_methods(Runtime& runtime, const std::shared_ptr<SharedModel>& model,
                                 const Dataset* dataset, const Options& options, const Options& adapters);

}  // namespace tessera
