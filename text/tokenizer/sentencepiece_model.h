// tokenizer.model: SentencePiece's own file, a protocol buffer.
#pragma once

#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "text/tokenizer/sentencepiece_settings.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

// The vocabulary of a file, without a kind, and how its pieces are used.
struct SentencePieceModel {
  TokenizerData data;
  SentencePieceSettings settings;
};
Result<SentencePieceModel> read_sentencepiece_model(std::string_view file);

// A tokenizer with the ids and the text that the library sentencepiece has: kSentencePiece for BPE of plain settings, else
// kSentencePieceModel. BOS is put before texts of BPE models, nothing before others. kUnsupported names another algorithm.
Result<TokenizerData> sentencepiece_model(std::string_view file, std::vector<int32_t> end_ids);

}  // namespace tessera
