// Converts a tokenizer pipeline to the byte-level BPE of a GGUF file.
#pragma once

#include "graph/base/result.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// Returns tokens, merges and the name of the split pattern. kUnsupported names the part that GGUF lacks.
Result<TokenizerData> byte_level_vocabulary(const TokenizerData& pipeline);

}  // namespace tessera
