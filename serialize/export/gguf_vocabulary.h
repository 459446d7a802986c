// A model's tokenizer and its chat template as the keys of a GGUF file: the way back of gguf_tokenizer.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/base/result.h"
#include "serialize/export/gguf_writer.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// `tokens`: of the model's vocabulary; tokens that the tokenizer lacks are unused ones. Without a tokenizer the file
// says so. kUnsupported names what the format has no form for.
Status write_gguf_vocabulary(const std::optional<TokenizerData>& tokenizer, int64_t tokens, GgufWriter& out);

}  // namespace tessera
