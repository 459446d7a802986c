// Converts BERT vocabularies between tokenizer.json and GGUF.
#pragma once

#include <string>
#include <vector>

#include "graph/base/result.h"
#include "text/tokenizer/tokenizer.h"

namespace tessera {

struct WordPieceVocabulary {
  TokenizerData data;  // kWordPiece: words begin with ▁, continuations have no mark
  bool lowercase = true, strip_accents = true;
};

// Whether a pipeline's model is WordPiece.
bool is_wordpiece_pipeline(const TokenizerData& pipeline);
// kUnsupported names the part that GGUF lacks.
Result<WordPieceVocabulary> wordpiece_vocabulary(const TokenizerData& pipeline);
// Tokens in the form of tokenizer.json: ## before continuations.
std::vector<std::string> wordpiece_tokens(const TokenizerData& data);

}  // namespace tessera
