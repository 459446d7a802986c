// Exports a SentencePiece tokenizer to other formats.
#pragma once

#include <string>

#include "graph/base/result.h"
#include "text/json.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// tokenizer.model of a kSentencePieceModel. kUnsupported if its pieces were changed.
Result<std::string> write_sentencepiece_file(const TokenizerData& data);
// tokenizer_config.json that completes the file; empty if the file suffices.
Result<Json> sentencepiece_side_file(const TokenizerData& data);
// Converts to a GGUF vocabulary: BPE becomes kSentencePiece, Unigram
// is unchanged. kUnsupported names a setting that GGUF lacks.
Result<TokenizerData> gguf_sentencepiece(const TokenizerData& data);

}  // namespace tessera
