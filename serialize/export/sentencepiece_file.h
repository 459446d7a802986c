// A tokenizer of SentencePiece's own settings as the files that others read it from.
#pragma once

#include <string>

#include "graph/base/result.h"
#include "text/json.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// tokenizer.model of a kSentencePieceModel. kUnsupported where its pieces are not the file's any more.
Result<std::string> write_sentencepiece_file(const TokenizerData& data);
// What tokenizer_config.json has to say with it, so that both together are this tokenizer; empty where the file says all.
Result<Json> sentencepiece_side_file(const TokenizerData& data);
// A vocabulary that GGUF files have words for: a kSentencePiece for BPE; Unigram's stays as it is. kUnsupported names a
// setting that they have none for.
Result<TokenizerData> gguf_sentencepiece(const TokenizerData& data);

}  // namespace tessera
