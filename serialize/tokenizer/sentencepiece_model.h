// tokenizer.model: SentencePiece's own file, a protocol buffer.
#pragma once

#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "serialize/tokenizer/tokenizer.h"

namespace tessera {

// BPE becomes a tokenizer of kind kSentencePiece, Unigram a pipeline. kUnsupported names another kind, and a normalizer
// that is not known. `tokenizer_config`: the text of tokenizer_config.json, or empty.
Result<TokenizerData> sentencepiece_model(std::string_view file, std::string_view tokenizer_config,
                                          std::vector<int32_t> end_ids);

}  // namespace tessera
