// tokenizer.model: SentencePiece's own file, a protocol buffer.
#pragma once

#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "text/tokenizer/sentencepiece_settings.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// SentencePieceModel: a file's vocabulary, without a kind, and its settings.
struct SentencePieceModel {
  TokenizerData data;
  SentencePieceSettings settings;
};
Result<SentencePieceModel> read_sentencepiece_model(std::string_view file);

// A tokenizer equal to the library sentencepiece: kSentencePiece for plain BPE, else
// kSentencePieceModel. BPE models put BOS before texts. kUnsupported names another algorithm.
Result<TokenizerData> sentencepiece_model(std::string_view file, std::vector<int32_t> end_ids);

}  // namespace tessera
