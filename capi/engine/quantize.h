// Quantisation of models: its options, its report, and that of a loaded model in one call. Files are
// quantised by Conversion.
#pragma once

#include <optional>
#include <string>

#include "capi/engine/options.h"
#include "capi/engine/shared_model.h"
#include "serialize/json.h"
#include "serialize/quantization.h"

namespace tessera {

// From "type", "pure", "output_type", "embedding_type", "imatrix" and "threads" (tsr_conversion_new); nullopt
// without "type". Reads the importance matrix.
Result<std::optional<QuantizationSettings>> read_quantization_settings(OptionReader& reader);

// The object "quantization" of tsr_conversion_finish's report. Call it when all tensors are written.
Json quantization_json(const QuantizationSettings& settings, const Quantization& quantization);

// Writes the model to a file, quantised; the report of tsr_model_quantize.
Result<std::string> quantize_model(const SharedModel& model, const std::string& path, const Options& options);

}  // namespace tessera
