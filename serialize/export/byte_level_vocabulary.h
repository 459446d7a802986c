// A tokenizer pipeline as the byte-level BPE of a GGUF file, where it is one.
#pragma once

#include "graph/base/result.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// Tokens, merges and the name of the split pattern. kUnsupported names the part that such files have no word for.
Result<TokenizerData> byte_level_vocabulary(const TokenizerData& pipeline);

}  // namespace tessera
