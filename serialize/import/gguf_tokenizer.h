// The vocabulary of a GGUF file as TokenizerData: "llama" (SentencePiece), "gpt2" (byte-level BPE), "bert"
// (WordPiece).
#pragma once

#include <optional>

#include "graph/base/result.h"
#include "serialize/import/gguf_file.h"
#include "serialize/tokenizer/tokenizer.h"

namespace tessera {

// nullopt when the file holds no vocabulary. Tokenizer::create checks the contents.
Result<std::optional<TokenizerData>> gguf_tokenizer(const GgufFile& file);

}  // namespace tessera
