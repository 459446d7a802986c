// Method: what of a model trains, and in which type the rest is kept.
//   full         all parameters, as f32
//   lora         low-rank adapters; the base as the model has it
//   qlora:TYPE   low-rank adapters; the base quantised to TYPE, as a file by `tessera quantize --type TYPE`
#pragma once

#include <memory>
#include <string>

#include "capi/engine/dataset.h"
#include "capi/engine/runtime.h"
#include "capi/engine/shared_model.h"

namespace tessera {

// The model whose training that is. Options are those of add_adapters; kInvalidArgument for some with "full".
Result<std::shared_ptr<SharedModel>> model_for_method(const std::shared_ptr<SharedModel>& model,
                                                      const std::string& method, const Options& adapters);

// Plans the methods that the option "method" means ("auto": all), the richest first, and chooses the first that fits
// without tensors in a file, else the first that fits. JSON, of which tessera.h has the keys. `options`: the trainer's; `dataset` may be null. kOutOfMemory where none fits names the
// nearest.
Result<std::string> plan_methods(Runtime& runtime, const std::shared_ptr<SharedModel>& model,
                                 const Dataset* dataset, const Options& options, const Options& adapters);

}  // namespace tessera
