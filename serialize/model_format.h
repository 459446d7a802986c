// The format of a model's file by its first bytes, and a description of other files.
#pragma once

#include <cstdint>

#include "serialize/model.h"

namespace tessera {

enum class ModelFormat : uint8_t { kTsr, kGguf, kSafetensors };

// kCorrupt for any other file: "wanted a .tsr, GGUF or safetensors file; this looks like text".
Result<ModelFormat> model_format(const ByteSource& source);

}  // namespace tessera
