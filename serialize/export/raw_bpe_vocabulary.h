// Vocabularies that merge UTF-8 with ▁ for spaces, and spell other characters by byte tokens (Gemma).
#pragma once

#include <optional>

#include "graph/base/result.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// The vocabulary of such a pipeline with merges and types as GGUF files have them; nullopt for another pipeline.
Result<std::optional<TokenizerData>> raw_bpe_vocabulary(const TokenizerData& pipeline);

}  // namespace tessera
