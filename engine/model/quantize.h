// Quantisation in Conversion and Export: its options and its report.
#pragma once

#include <optional>
#include <string>

#include "engine/base/options.h"
#include "engine/model/shared_model.h"
#include "serialize/quantization.h"
#include "text/json.h"

namespace tessera {

// From "type", "pure", "output_type", "embedding_type", "imatrix" and "threads" (tsr_conversion_begin); nullopt
// without "type". Reads the importance matrix.
Result<std::optional<QuantizationSettings>> read_quantization_settings(OptionReader& reader);

// The object "quantization" in the report of tsr_conversion_finish. Call it after all tensors are written.
Json quantization_json(const QuantizationSettings& settings, const Quantization& quantization);

}  // namespace tessera
