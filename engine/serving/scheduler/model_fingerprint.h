// What keys and values depend on beside the tokens, as one number: a model's graph and parameters, and how it is computed.
#pragma once

#include <cstdint>

#include "engine/base/compute_settings.h"
#include "engine/model/shared_model.h"
#include "graph/base/result.h"

namespace tessera {

// Of the parameters names and types, and of each value some bytes at its beginning, middle and end: any training changes
// them. Not of the devices: their results may differ by rounding.
Result<uint64_t> model_fingerprint(const SharedModel& model, const InferenceSettings& inference);

}  // namespace tessera
