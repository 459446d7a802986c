// quantization_config of compressed-tensors (llm-compressor, vLLM).
#pragma once

#include "graph/base/result.h"
#include "serialize/import/json_fields.h"
#include "serialize/import/module_schemes.h"

namespace tessera {

// Groups by targets, each with its format: pack-quantized, int-quantized, float-quantized, naive-quantized, nvfp4-pack-quantized,
// mxfp4-pack-quantized, mxfp8-quantized, dense. Settings of activations, keys and values are left out. kUnsupported names a key
// with another value, and sparse or transformed weights.
Result<ModuleSchemes> read_compressed_tensors(JsonFields& fields);

}  // namespace tessera
