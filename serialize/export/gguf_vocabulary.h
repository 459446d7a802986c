// A model's tokenizer and chat template as keys of a GGUF file: the inverse of gguf_tokenizer.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/base/result.h"
#include "serialize/export/gguf_writer.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// `tokens`: size of the model's vocabulary; missing tokens are written as unused. Without
// a tokenizer the file states so. kUnsupported names the part that the format lacks.
Status write_gguf_vocabulary(const std::optional<TokenizerData>& tokenizer, int64_t tokens, GgufWriter& out);

}  // namespace tessera
