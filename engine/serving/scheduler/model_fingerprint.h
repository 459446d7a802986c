// Fingerprint of everything that keys and values depend on except the tokens: graph, parameters, numerics.
#pragma once

#include <cstdint>

#include "engine/base/compute_settings.h"
#include "engine/model/shared_model.h"
#include "graph/base/result.h"

namespace tessera {

// Hashes parameter names and types, and bytes at the beginning, middle and end of each
// value, which any training changes. Devices are excluded: results may differ by rounding.
Result<uint64_t> model_fingerprint(const SharedModel& model, const InferenceSettings& inference);

}  // namespace tessera
