// The format of a model's file, told by its first bytes; for other files, what they look like.
#pragma once

#include <cstdint>

#include "serialize/model.h"

namespace tessera {

enum class ModelFormat : uint8_t { kTsr, kGguf, kSafetensors };

// kCorrupt for a file that begins as neither: "wanted a .tsr, GGUF or safetensors file; this looks like text".
Result<ModelFormat> model_format(const ByteSource& source);

}  // namespace tessera
